"""What the NPU tests share: one tiny trained model, its data, and artifacts made of it by the real compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from compressor.core.artifact import Artifact, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.quantize.plan import QuantizationPlan
from devices.profiles import load_profile
from export.build import ExportResult, export_artifacts
from export.source import ExportRequest
from tests.models import keyword_split

PHONE = "snapdragon-8gen3"
EVALUATION = keyword_split(10, seed=2)
CALIBRATION = keyword_split(40, seed=3)


def needs_qnn() -> None:
    """Skips where the compiler is not installed."""
    pytest.importorskip("onnxruntime_qnn", reason="needs the extra 'qnn' (x86-64 Linux)")


def request(precision: Precision, **changes: object) -> ExportRequest:
    """What the tests ask for: one length, few sentences."""
    values = {
        "formats": ("onnx-qnn",), "precisions": (precision,), "lengths": (12,), "parity_texts": EVALUATION.texts,
        "parity_source": "test sentences", "calibration_texts": CALIBRATION.texts, "selection": EVALUATION,
        "report": EVALUATION, "device": load_profile(PHONE), "name": "tiny", "plan": QuantizationPlan(), **changes,
    }  # fmt: skip
    return ExportRequest(**values)


def export(checkpoint: Checkpoint, folder: Path, precision: Precision, **changes: object) -> ExportResult:
    """Exports with the settings of :func:`request`."""
    return export_artifacts(checkpoint, request(precision, **changes), folder)


def one(result: ExportResult) -> Artifact:
    """The only artifact of a result."""
    (artifact,) = result.artifacts
    return artifact
