"""Structural compression: what pruning and trimming cost at real size, and which method fits which family.

    python -m benchmarks.studies.shrink prune-bert-base             # seconds and memory of pruning BERT-base
    python -m benchmarks.studies.shrink trim-xlm-r                  # 250,002 pieces → 20,000
    python -m benchmarks.studies.shrink trim-texts train.tsv …      # MiniLM trimmed to texts: logits then and now
    python -m benchmarks.studies.shrink matrix                      # every family x method, tiny: the table in docs/

Each prints one JSON document. How well a pruned or shared model recovers is what ``recipes/prune.yaml`` and
``recipes/share.yaml`` report.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.studies.conversion_cost import spec_of
from benchmarks.studies.process_memory import peak_bytes
from benchmarks.studies.systems import SYSTEMS, write_checkpoint, write_system
from compressor.app.inputs import read_texts
from compressor.core.artifact import Format, IOSpec
from compressor.core.checkpoint import Checkpoint
from compressor.core.environment import machine
from compressor.core.errors import CompressorError
from compressor.data.batches import encode_split
from compressor.data.dataset import Split, TextDataset
from compressor.data.demo_model import demo_teacher
from compressor.data.intents import generate_intents
from compressor.evaluation import predict_logits
from compressor.models import load_compressed, save_checkpoint, unique_parameters
from compressor.prune.config import PruneConfig
from compressor.prune.sparsify import Sparsify, SparsifyConfig
from compressor.prune.stage import Prune
from compressor.share.factorize import Factorize, FactorizeConfig
from compressor.share.stage import Share, ShareConfig
from compressor.stage import Context, Stage
from compressor.train.runtime import torch_threads
from compressor.trim.stage import Trim, TrimConfig
from export.backend import backend_for

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "shrink-matrix.md"
FAMILIES = ("bert-base", "roberta-base", "xlm-roberta-base", "albert-base", "distilbert", "electra-small", "mobilebert",
            "deberta-v3-base")  # fmt: skip
METHODS: dict[str, Callable[[], Stage[Any]]] = {
    "heads and FFN, uneven": lambda: Prune(PruneConfig(heads=0.33, ffn=0.5, importance="activation")),
    "layers": lambda: Prune(PruneConfig(drop_layers=(1, 3))),
    "hidden size": lambda: Prune(PruneConfig(hidden=48)),
    "share": lambda: Share(ShareConfig(groups=2)),
    "factorize": lambda: Factorize(FactorizeConfig(rank=16)),
    "trim": lambda: Trim(TrimConfig()),
    "sparsify 2:4": lambda: Sparsify(SparsifyConfig(pattern="2:4")),
}
_TINY = {"vocab_size": 3000, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
         "intermediate_size": 128, "embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32,
         "dim": 64, "n_layers": 4, "n_heads": 4, "hidden_dim": 128, "pooler_hidden_size": 64,
         "position_buckets": 16}  # fmt: skip


def measured(stage: Stage[Any], source: Checkpoint, folder: Path, data: TextDataset) -> dict[str, Any]:
    """Runs one stage; returns its facts, its seconds, and the most memory this process ever held."""
    output = folder / "output"
    output.mkdir(parents=True)
    context = Context(teacher=source, current=source, data=data, workdir=folder, scratch=folder)
    started = time.perf_counter()
    stage.requires(context)
    facts = stage.run(context, output)
    seconds = time.perf_counter() - started
    stage.ensures(context, output)
    peak = peak_bytes() / 1e6
    return {"facts": facts, "seconds": round(seconds, 2), "peak_memory_mb": round(peak)}


def prune_bert_base(folder: Path, data: TextDataset) -> dict[str, Any]:
    """Prunes a BERT-base of random weights by magnitude; what importance on text costs is told apart."""
    write_checkpoint("bert-base", folder / "bert", data.train.texts[:200])  # type: ignore[arg-type]
    source = Checkpoint.open(folder / "bert")
    found = {}
    for method in ("magnitude", "activation"):
        settings = PruneConfig.model_validate({"heads": 0.33, "ffn": 0.5, "importance": method, "multiple_of": 32})
        found[method] = measured(Prune(settings), source, folder / method, data)
    return found


def trim_xlm_r(folder: Path, data: TextDataset) -> dict[str, Any]:
    """Trims XLM-R at real size to 20,000 pieces: those of the texts, then others of the same script."""
    write_checkpoint("xlm-roberta-base", folder / "xlm-r", data.train.texts)  # type: ignore[arg-type]
    stage = Trim(TrimConfig(max_pieces=20_000, scripts=("latin",)))
    return measured(stage, Checkpoint.open(folder / "xlm-r"), folder / "trimmed", data)


def trim_texts(folder: Path, files: list[Path]) -> dict[str, Any]:
    """Trims the real MiniLM to texts; returns how far logits of a random head move on every one of them."""
    texts = tuple(text for file in files for text in read_texts(file)[0])
    source = Checkpoint.open(demo_teacher())
    split = Split(texts, (0,) * len(texts))
    data = replace(generate_intents(), train=split)
    torch.manual_seed(0)
    model = load_compressed(source, num_labels=7)
    model.save_pretrained(folder / "source")  # type: ignore[operator]
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (folder / "source" / name).write_bytes((source.path / name).read_bytes())
    source = Checkpoint.open(folder / "source")
    found = measured(Trim(TrimConfig()), source, folder / "trimmed", data)
    made = Checkpoint.open(folder / "trimmed/output")
    before, after = (
        predict_logits(load_compressed(it), encode_split(it, split, max_tokens=128)) for it in (source, made)
    )
    return {**found, "texts": len(texts), "largest_difference": float(np.abs(before - after).max())}


def matrix(folder: Path, data: TextDataset, formats: tuple[Format, ...] = ("onnx",)) -> dict[str, Any]:
    """Runs every method on every family at tiny size, exports each, and writes the table."""
    cells: dict[str, dict[str, str]] = {}
    for name in FAMILIES:
        source = tiny_checkpoint(name, folder / name)
        family = source.config["model_type"]
        cells[family] = {
            method: _cell(stage(), source, folder / f"{name}-{place}", data, formats)
            for place, (method, stage) in enumerate(METHODS.items())
        }
    lines = ["| family |" + "".join(f" {method} |" for method in METHODS), "|---|" + "---|" * len(METHODS)]
    lines += [f"| {family} |" + "".join(f" {row[method]} |" for method in METHODS) for family, row in cells.items()]
    DOCUMENT.write_text(
        "# Methods and families\n\n"
        f"Written by `python -m benchmarks.studies.shrink matrix --formats {','.join(formats)}`:\n"
        "random models of four layers. Each cell holds the parameters (for `sparsify` the zeros among the\n"
        "encoder's weights), then the largest difference of the\n"
        f"{' and the '.join(formats)} file's logits to PyTorch's, as a share of their spread. In every cell with\n"
        "numbers the parameters are those that were computed beforehand, and saving and loading the model gives the\n"
        "same logits, bit for bit.\n\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )
    return cells


def tiny_checkpoint(name: str, folder: Path) -> Checkpoint:
    """Writes a system of four narrow layers with random weights and 3,000 pieces.

    Args:
        name: one of ``FAMILIES``.
        folder: where to.
    """
    import transformers

    system = next(system for system in SYSTEMS if system.name == name)
    known = getattr(transformers, system.config_class)().to_dict()
    changes = {key: value for key, value in _TINY.items() if key in known or key in system.config}
    texts = tuple(map(str, generate_intents().train.texts[:200]))
    write_system(replace(system, config={**system.config, **changes}), folder, texts)
    return Checkpoint.open(folder)


def _cell(stage: Stage[Any], source: Checkpoint, folder: Path, data: TextDataset, formats: tuple[Format, ...]) -> str:
    try:
        facts = measured(stage, source, folder, data)["facts"]
    except CompressorError as error:
        return f"does not apply: {error.message}"
    made = Checkpoint.open(folder / "output")
    model = load_compressed(made)
    save_checkpoint(model, made.path, folder / "again")
    if not torch.equal(_logits(model, made, data), _logits(load_compressed(folder / "again"), made, data)):
        return "**reload differs**"
    before, after = unique_parameters(load_compressed(source)), unique_parameters(model)
    told = f"{before:,} → {after:,}"
    if "sparsity" in facts:
        told = f"{facts['sparsity']['share']:.0%} zeros"
    return "; ".join((told, *(f"{_error(kind, model, made, folder, data):.0e}" for kind in formats)))


def _logits(model: Any, checkpoint: Checkpoint, data: TextDataset) -> torch.Tensor:
    split = Split(data.test.texts[:8], data.test.labels[:8])
    return torch.from_numpy(predict_logits(model, encode_split(checkpoint, split, max_tokens=32)))


def _error(kind: Format, model: Any, checkpoint: Checkpoint, folder: Path, data: TextDataset) -> float:
    """Returns how far the converted file's logits are from PyTorch's, as a share of their spread."""
    output, spec, backend = folder / kind, spec_of(model, (32,)), backend_for(kind)
    output.mkdir()
    backend.convert(model, spec, output)
    lengths = (32,) if kind == "tflite" else ()
    io = IOSpec(max_tokens=32, lengths=lengths, pad_id=spec.pad_id, signatures=backend.signatures(output))
    predictor = backend.open(output, io, threads=1)
    split = Split(data.test.texts[:8], data.test.labels[:8])
    encoded = encode_split(checkpoint, split, max_tokens=32)
    wanted = predict_logits(model, encoded)
    found = np.concatenate([predictor.logits(encoded.encoder.pad([item], 32)) for item in encoded.encoded])
    return float(np.abs(found - wanted).max() / np.ptp(wanted))


def main() -> None:
    """Runs one study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("prune-bert-base", "trim-xlm-r", "trim-texts", "matrix"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--formats", default="onnx", help="of the matrix: onnx or onnx,tflite")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="compressor-shrink-") as name, torch_threads(arguments.threads):
        folder, data = Path(name), generate_intents()
        if arguments.study == "trim-texts":
            found = trim_texts(folder, arguments.files)
        elif arguments.study == "matrix":
            found = matrix(folder, data, tuple(arguments.formats.split(",")))
        else:
            run = {"prune-bert-base": prune_bert_base, "trim-xlm-r": trim_xlm_r}[arguments.study]
            found = run(folder, data)
    print(json.dumps({"machine": machine(), arguments.study: found}, indent=2, default=str))


if __name__ == "__main__":
    main()
