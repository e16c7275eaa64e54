"""Every family at its real size, compiled for one Snapdragon: seconds, megabytes, placement and simulated parity.

    python -m benchmarks.studies.qnn_families --tokenizer FOLDER [--families bert,albert] [--device snapdragon-8gen3]

``seconds`` is the compiler alone for FP16, calibration and the compiler for the rest. Weights are random (time, size
and placement do not depend on them), so parity is a signal-to-noise ratio on a few sentences and no score. One family,
one precision after the other; the result file is written after each.
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    MobileBertConfig,
    PretrainedConfig,
    RobertaConfig,
)

from benchmarks.studies.qnn_compiled import Subject, compiled, float_logits, simulated_logits
from compressor.core.artifact import NPU_PRECISIONS, Precision
from compressor.core.errors import CompressorError
from compressor.core.folders import write_json
from compressor.data.intents import generate_intents
from devices.profiles import load_profile
from export.calibration import Calibration
from export.qnn.npu import library_versions

CONFIGS: dict[str, PretrainedConfig] = {
    "minilm": BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536),
    "tinybert": BertConfig(hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200),
    "distilbert": DistilBertConfig(),
    "bert": BertConfig(),
    "electra": ElectraConfig(embedding_size=768, hidden_size=768, num_attention_heads=12, intermediate_size=3072),
    "roberta": RobertaConfig(vocab_size=50265, max_position_embeddings=514, type_vocab_size=1, pad_token_id=0),
    "albert": AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072),
    "mobilebert": MobileBertConfig(),
    "deberta": DebertaV2Config(
        hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072, vocab_size=128100,
        relative_attention=True, position_buckets=256, max_relative_positions=-1, pos_att_type=["p2c", "c2p"],
        norm_rel_ebd="layer_norm", position_biased_input=False, share_att_key=True, type_vocab_size=0,
    ),
}  # fmt: skip
"""The published sizes; token ids beyond the tokenizer's are never fed."""
SENTENCES = 4
TEXTS = 32


def main() -> None:
    """Compiles what was asked for and prints one row a family and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="Folder with a WordPiece tokenizer.json.")
    parser.add_argument("--families", default=",".join(CONFIGS))
    parser.add_argument("--precisions", default="fp16,w8a16")
    parser.add_argument("--device", default="snapdragon-8gen3")
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--work", type=Path, default=Path("runs/qnn_families"))
    parser.add_argument("--output", type=Path, default=Path("runs/qnn_families.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    profile = load_profile(options.device)
    precisions = [item for item in NPU_PRECISIONS if item in options.precisions.split(",")]
    rows: list[dict[str, object]] = []
    for family in options.families.split(","):
        work = options.work / family
        model = _checkpoint(family, options.tokenizer, work / "model")
        subject = Subject.open(family, model, work, (options.length,), profile)
        for precision in precisions:
            rows.append({"family": family, "precision": precision, "device": profile.name, "length": options.length,
                         **_row(subject, precision), **library_versions()})  # fmt: skip
            print(*(f"{key} {value}" for key, value in rows[-1].items()), sep=" | ", flush=True)
            write_json(options.output, rows)
        shutil.rmtree(work)


def _checkpoint(family: str, tokenizer: Path, folder: Path) -> Path:
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    AutoModelForSequenceClassification.from_config(CONFIGS[family]).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, folder / name)
    return folder


def _row(subject: Subject, precision: Precision) -> dict[str, object]:
    data = generate_intents()
    calibration = Calibration(encoder=subject.encoder, texts=data.train.texts[:TEXTS], lengths=subject.lengths)
    start = time.perf_counter()
    try:
        made = compiled(subject, precision, calibration)
    except CompressorError as error:
        return {"compiles": False, "reason": error.message[:300]}
    seconds, texts = time.perf_counter() - start, data.test.texts[:SENTENCES]
    reference, found = float_logits(subject, texts), simulated_logits(subject, made.folder, texts)
    noise = float(np.square(found - reference).mean())
    signal = float(np.square(reference - reference.mean()).mean())
    return {
        "compiles": True,
        "delegated": round(made.placement.delegated, 4),
        "contexts": made.placement.contexts,
        "cpu_operators": made.placement.cpu_nodes,
        "size_mb": round(made.size_mb, 2),
        "seconds": round(seconds, 1),
        "simulated_signal_to_noise_db": round(10 * float(np.log10(signal / noise)), 1),
    }


if __name__ == "__main__":
    main()
