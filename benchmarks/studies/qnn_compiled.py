"""What the NPU studies share: a checkpoint as a float graph, compiled in one precision, and both asked for answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compressor.core.artifact import PLACEMENT, Placement, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import DeviceProfile
from compressor.core.schema import Text
from compressor.families import adapter_for
from compressor.models import load_compressed, load_config
from compressor.quantize.plan import QuantizationPlan
from compressor.text import SentenceEncoder, bucket
from export.backend import ConversionSpec, Predictor
from export.calibration import Calibration
from export.onnx.predictor import OnnxPredictor
from export.qnn.backend import PLAIN, QnnBackend
from export.qnn.predictor import SimulatedPredictor


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A checkpoint and its float graph for one NPU, made once in ``work``."""

    name: str
    checkpoint: Checkpoint
    encoder: SentenceEncoder
    lengths: tuple[int, ...]
    device: str
    work: Path

    @classmethod
    def open(cls, name: str, path: Path, work: Path, lengths: tuple[int, ...], profile: DeviceProfile) -> Subject:
        """Opens a checkpoint; its float graph is traced unless an earlier call left it."""
        checkpoint = Checkpoint.open(path)
        config = load_config(checkpoint)
        adapter = adapter_for(config)
        encoder = SentenceEncoder.load(checkpoint.path, max_tokens=lengths[-1])
        spec = ConversionSpec(
            lengths=lengths, max_tokens=lengths[-1], takes_token_types=adapter.takes_token_types(config),
            pad_id=encoder.pad_id, num_labels=int(config.num_labels), model_type=adapter.model_type, device=profile,
        )  # fmt: skip
        folder = work / profile.name / "-".join(map(str, lengths))
        if not (folder / "fp32" / PLAIN).is_file():
            (folder / "fp32").mkdir(parents=True, exist_ok=True)
            QnnBackend().convert(load_compressed(checkpoint.path), spec, folder / "fp32")
        return cls(name=name, checkpoint=checkpoint, encoder=encoder, lengths=lengths, device=profile.name, work=folder)


@dataclass(frozen=True)
class Made:
    """Compiled files."""

    folder: Path
    placement: Placement
    size_mb: float


def compiled(subject: Subject, precision: Precision, calibration: Calibration | None) -> Made:
    """Returns a subject's compiled files in one precision, made unless an earlier call left them whole."""
    backend, folder = QnnBackend(), subject.work / precision
    if not (folder / PLACEMENT).is_file():
        folder.mkdir(exist_ok=True)
        backend.reduce(subject.work / "fp32", folder, precision, QuantizationPlan(), calibration)
    placement = Placement.model_validate_json((folder / PLACEMENT).read_bytes())
    size = sum(path.stat().st_size for path in folder.glob(backend.model_pattern))
    return Made(folder, placement, size / 1e6)


def float_logits(subject: Subject, texts: Sequence[Text]) -> np.ndarray:
    """Returns the FP32 graph's logits (texts, labels) in ONNX Runtime on this CPU."""
    return _logits(subject, OnnxPredictor(subject.work / "fp32" / PLAIN, threads=1, fixed_batch=1), texts)


def simulated_logits(subject: Subject, folder: Path, texts: Sequence[Text]) -> np.ndarray:
    """Returns the compiled files' logits (texts, labels) in the simulator."""
    predictor = SimulatedPredictor(folder, subject.lengths, PLAIN)
    try:
        return _logits(subject, predictor, texts)
    finally:
        predictor.close()


def _logits(subject: Subject, predictor: Predictor, texts: Sequence[Text]) -> np.ndarray:
    rows = [
        predictor.logits(subject.encoder.pad([item], bucket(len(item), subject.lengths)))[0]
        for item in subject.encoder.encode(list(texts))
    ]
    return np.stack(rows)
