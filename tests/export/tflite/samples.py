"""Tiny models of every family, converted once per test session and shared by all TFLite tests."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import nn

from compressor.core.artifact import IOSpec
from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.quantize.plan import QuantizationPlan
from compressor.text import Batch, SentenceEncoder
from export.backend import ConversionSpec
from export.tflite.backend import TFLiteBackend
from export.tflite.convert import trace
from tests.models import SENTENCES, tiny_checkpoint

LENGTHS = (8, 16)
BACKEND = TFLiteBackend()
_FOLDER = tempfile.TemporaryDirectory(prefix="tflite-samples-")


@dataclass(frozen=True)
class Sample:
    folder: Path
    model: nn.Module
    spec: ConversionSpec
    encoder: SentenceEncoder

    @property
    def traced(self) -> bytes:
        """litert-torch's own file, every length lowered by itself."""
        file = self.folder / "traced.tflite"
        if not file.exists():
            file.write_bytes(trace(self.model, self.spec.lengths, self.spec))
        return file.read_bytes()

    @property
    def fp32(self) -> Path:
        return self.folder / "fp32"

    def reduced(self, precision: str, output: Path | None = None, plan: QuantizationPlan | None = None) -> Path:
        target = output or self.folder / precision
        if not (target / "model.tflite").exists():
            BACKEND.reduce(self.fp32, target, precision, plan or QuantizationPlan(precision=precision))
        return target

    def batches(self) -> list[Batch]:
        """Every sentence at every length that holds it: short ones come with much padding."""
        encoded = self.encoder.encode(SENTENCES)
        return [self.encoder.pad([e for e in encoded if len(e) <= n], n) for n in self.spec.lengths]

    def reference(self, batch: Batch) -> np.ndarray:
        skip = set() if self.spec.takes_token_types else {"token_type_ids"}
        with torch.no_grad():
            return self.model(**{k: torch.from_numpy(v) for k, v in batch.items() if k not in skip}).logits.numpy()

    def error(self, folder: Path) -> float:
        """Largest difference from PyTorch, in units of the logits' spread."""
        predictor = open_folder(folder, self.spec)
        wanted = [self.reference(batch) for batch in self.batches()]
        found = [predictor.logits(batch) for batch in self.batches()]
        largest = max(np.abs(f - w).max() for f, w in zip(found, wanted, strict=True))
        return float(largest / np.ptp(np.concatenate(wanted)))


def open_folder(folder: Path, spec: ConversionSpec):
    io = IOSpec(
        max_tokens=spec.max_tokens, lengths=spec.lengths, pad_id=spec.pad_id, signatures=BACKEND.signatures(folder)
    )
    return BACKEND.open(folder, io, threads=1)


@cache
def sample(family: str, layers: int = 1, lengths: tuple[int, ...] = LENGTHS) -> Sample:
    folder = Path(_FOLDER.name, f"{family}-{layers}-{'-'.join(map(str, lengths))}")
    tiny_checkpoint(family, folder / "checkpoint", layers=layers)
    model = load_compressed(folder / "checkpoint")
    scatter_vectors(model)
    encoder = SentenceEncoder.load(folder / "checkpoint", max_tokens=max(lengths))
    adapter = adapter_for(model.config)
    spec = ConversionSpec(
        lengths=lengths,
        max_tokens=adapter.max_tokens(model.config),
        takes_token_types=adapter.takes_token_types(model.config),
        pad_id=encoder.pad_id,
        num_labels=model.config.num_labels,
        model_type=model.config.model_type,
    )
    BACKEND.convert(model, spec, folder / "fp32")
    return Sample(folder, model, spec, encoder)


def scatter_vectors(model: nn.Module) -> None:
    """Gives biases and norm scales values a trained model would have; fresh ones are all 0 and 1 and hide mistakes."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
