"""ALBERT-base at its real size for TensorRT: seconds, bytes, and what the built layers compute in.

Random weights (sizes and types do not depend on the values), from a saved folder to ONNX and a TensorRT-RTX plan for
every GPU generation that it knows; needs the extra 'rtx' and no GPU. Prints a table in Markdown; CPU seconds are those
of the whole process, which is what counts on a machine that does other things as well.

    python -m benchmarks.studies.tensorrt_albert [--lengths 16,32,64,128]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn

from benchmarks.studies.process_memory import peak_bytes
from compressor.core.artifact import Precision
from compressor.quantize.plan import QuantizationPlan
from compressor.text import SentenceEncoder
from export.backend import ConversionSpec
from export.calibration import Calibration
from export.tensorrt.backend import TensorRTBackend

VOCABULARY = 30000
SENTENCES = 32


def main(arguments: list[str]) -> int:
    """Converts in FP16 and INT8 and prints one row each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="16,32,64,128")
    lengths = tuple(int(part) for part in parser.parse_args(arguments).lengths.split(","))
    torch.set_num_threads(1)
    print("| precision | ONNX MB | plan MB | seconds from the folder | CPU seconds | GEMM layers by type |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        _save(Path(name) / "albert")
        for precision in ("fp16", "int8"):
            print(_row(Path(name), precision, lengths), flush=True)
    print(f"\npeak memory {peak_bytes() / 1e9:.1f} GB")
    return 0


def _row(folder: Path, precision: Precision, lengths: tuple[int, ...]) -> str:
    backend, start, cpu = TensorRTBackend(), time.perf_counter(), time.process_time()
    model = _load(folder / "albert")
    spec = ConversionSpec(
        lengths=lengths, max_tokens=lengths[-1], takes_token_types=True, pad_id=0, num_labels=2, model_type="albert"
    )
    folders = [folder / f"{precision}-{step}" for step in ("fp32", "reduced")]
    for path in folders:
        path.mkdir()
    backend.convert(model, spec, folders[0])
    plan = QuantizationPlan(precision=precision)
    backend.reduce(folders[0], folders[1], precision, plan, _calibration(lengths))
    facts: dict[str, Any] = dict(backend.finish(folders[1], spec, precision))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    onnx = (folders[1] / backend.model_file).stat().st_size
    types = ", ".join(f"{kind} {count}" for kind, count in facts["gemm_types"].items())
    return (
        f"| {precision} | {onnx / 1e6:.1f} | {facts['size_bytes'] / 1e6:.1f} | {seconds:.0f} "
        f"| {cpu_seconds:.0f} | {types}: {facts['proof']} |"
    )


def _save(folder: Path) -> None:
    from transformers import AlbertConfig, AlbertForSequenceClassification

    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=VOCABULARY, hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_labels=2
    )
    AlbertForSequenceClassification(config).save_pretrained(folder)


def _load(folder: Path) -> nn.Module:
    from transformers import AlbertForSequenceClassification

    model: nn.Module = AlbertForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    return model


def _calibration(lengths: tuple[int, ...]) -> Calibration:
    """Sentences of made-up words, one id a word; the pad is id 0."""
    draw = random.Random(0)
    words = {f"w{index}": index for index in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [
        " ".join(f"w{draw.randrange(2, VOCABULARY)}" for _ in range(draw.randint(4, lengths[-1])))
        for _ in range(SENTENCES)
    ]
    encoder = SentenceEncoder(tokenizer, max_tokens=lengths[-1], pad_id=0)
    return Calibration(encoder=encoder, texts=texts, lengths=lengths)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
