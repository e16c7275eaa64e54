"""What four lengths in one TFLite file cost over one.

Builds models of real size with random weights (sizes do not depend on the values), converts each at one and at four
lengths, and prints a table in Markdown. Every entry point of every file is run and compared with PyTorch.

    python -m benchmarks.studies.tflite_lengths [--mobilebert] [--lengths 16,32,64,128]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compressor.core.artifact import IOSpec, Precision
from compressor.families import adapter_for
from compressor.quantize.plan import QuantizationPlan
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS, Batch
from export.backend import ConversionSpec
from export.tflite.backend import TFLiteBackend

VOCABULARY = 30522
LARGEST_ERROR: dict[Precision, float] = {"fp32": 1e-4, "fp16": 1e-2, "int8": 0.5}
"""Of the logits' spread. Random weights make INT8's share of noise large; here it only shows that nothing is broken."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    model: str
    precision: Precision
    one_mb: float
    four_mb: float
    error: float
    """Largest difference from PyTorch over all lengths, in units of the logits' spread."""

    @property
    def overhead_percent(self) -> float:
        """How much larger the file with all lengths is than the one with the longest alone."""
        return 100 * (self.four_mb / self.one_mb - 1)


def configs(*, mobilebert: bool) -> Iterator[tuple[str, Any]]:
    """Yields the models of the study: a name and a transformers config."""
    from transformers import BertConfig, MobileBertConfig

    yield (
        "TinyBERT-4 4L-312",
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200
        ),
    )
    yield (
        "MiniLM 3L-384",
        BertConfig(
            vocab_size=VOCABULARY, hidden_size=384, num_hidden_layers=3, num_attention_heads=12, intermediate_size=1536
        ),
    )
    if mobilebert:
        yield "MobileBERT 24L", MobileBertConfig()


def build(config: Any) -> nn.Module:
    """Returns a random classifier whose logits differ from sentence to sentence."""
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    model: nn.Module = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        # Fresh norms scale by 1 and add 0, which a converter leaves out of the graph; trained ones do not.
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def study(name: str, config: Any, lengths: tuple[int, ...], folder: Path) -> Iterator[Row]:
    """Converts one model at the longest and at all of ``lengths``; yields a row for each precision."""
    model = build(config)
    backend = TFLiteBackend()
    adapter = adapter_for(config)
    specs = {
        label: ConversionSpec(
            lengths=chosen,
            max_tokens=adapter.max_tokens(config),
            takes_token_types=adapter.takes_token_types(config),
            pad_id=0,
            num_labels=config.num_labels,
            model_type=config.model_type,
        )
        for label, chosen in (("one", lengths[-1:]), ("all", lengths))
    }
    for label, spec in specs.items():
        backend.convert(model, spec, folder / label / "fp32")
    for precision in LARGEST_ERROR:
        if precision != "fp32":
            for label in specs:
                source, target = folder / label / "fp32", folder / label / precision
                backend.reduce(source, target, precision, QuantizationPlan(precision=precision))
        one, every = (backend.inspect(folder / label / precision / backend.model_file) for label in specs)
        if every.precision != precision or every.lengths != lengths:
            raise SystemExit(f"{name}: found {every.precision} at {every.lengths}, expected {precision} at {lengths}")
        error = largest_error(backend, folder / "all" / precision, model, lengths)
        if error > LARGEST_ERROR[precision]:
            raise SystemExit(f"{name} {precision}: outputs differ from PyTorch by {error:.1e} of the logits' spread")
        yield Row(name, precision, one.size_bytes / 1e6, every.size_bytes / 1e6, error)


def largest_error(backend: TFLiteBackend, folder: Path, model: nn.Module, lengths: tuple[int, ...]) -> float:
    """Returns the largest difference from PyTorch over padded random sentences at each length."""
    io = IOSpec(max_tokens=lengths[-1], lengths=lengths, pad_id=0, signatures=backend.signatures(folder))
    predictor = backend.open(folder, io, threads=1)
    differences, values = [], []
    for length in lengths:
        batch = sentences(length)
        with torch.no_grad():
            wanted = model(**{key: torch.from_numpy(array) for key, array in batch.items()}).logits.numpy()
        differences.append(np.abs(predictor.logits(batch) - wanted).max())
        values.append(wanted)
    return float(max(differences) / np.ptp(np.concatenate(values)))


def sentences(length: int) -> Batch:
    """Returns three rows of random ids: full, three quarters and half filled."""
    random = np.random.default_rng(length)
    used = np.array([[length], [length * 3 // 4], [length // 2]])
    mask = (np.arange(length)[None] < used).astype(np.int64)
    ids = random.integers(1, VOCABULARY, (3, length)) * mask
    return {INPUT_IDS: ids, ATTENTION_MASK: mask, TOKEN_TYPE_IDS: np.zeros_like(ids)}


def main(arguments: list[str] | None = None) -> int:
    """Runs the study and prints its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mobilebert", action="store_true", help="include MobileBERT (takes minutes)")
    parser.add_argument("--lengths", default="16,32,64,128", help="ascending, comma-separated")
    options = parser.parse_args(arguments)
    lengths = tuple(int(length) for length in options.lengths.split(","))
    torch.set_num_threads(1)
    print(f"| model | precision | MB, {lengths[-1]} alone | MB, {'/'.join(map(str, lengths))} | overhead | error |")
    print("|---|---|---|---|---|---|", flush=True)
    for name, config in configs(mobilebert=options.mobilebert):
        with tempfile.TemporaryDirectory() as scratch:
            for row in study(name, config, lengths, Path(scratch)):
                print(
                    f"| {row.model} | {row.precision} | {row.one_mb:.2f} | {row.four_mb:.2f} "
                    f"| {row.overhead_percent:+.1f} % | {row.error:.1e} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
