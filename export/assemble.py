"""From a proven file to an artifact's folder."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from compressor.core.artifact import PLACEMENT, TARGET, Artifact, Format, Manifest, Placement, Precision, write_manifest
from compressor.core.environment import machine, versions
from compressor.core.folders import new_folder
from export.backend import Backend
from export.bundle import write_card, write_companions
from export.candidate import Candidate
from export.ladder import Attempt, Rung
from export.source import ExportRequest, ExportSource

TUNED = "-ort"
"""End of the name of an artifact whose graph has ONNX Runtime's own fused operators."""

COMPUTE_PRECISION: dict[tuple[Format, Precision], str] = {
    ("onnx", "int8"): "int8",
    ("onnx", "int4"): "int8",
    ("tflite", "int8"): "int8",
    ("tflite", "int4"): "int8",
    ("tensorrt", "fp16"): "fp16",
    ("tensorrt", "int8"): "int8",
    ("onnx-qnn", "fp16"): "fp16",
    ("onnx-qnn", "mixed"): "w8a16 and fp16",
    ("onnx-qnn", "w8a16"): "w8a16",
    ("onnx-qnn", "w8a8"): "w8a8",
}
"""What a CPU (for TensorRT the engine, for onnx-qnn the NPU) computes in; fp32 where it widens half weights first."""


def assemble(
    backend: Backend,
    source: ExportSource,
    request: ExportRequest,
    rung: Rung,
    candidate: Candidate,
    attempts: tuple[Attempt, ...],
    target: Path,
) -> Artifact:
    """Writes the artifact's folder: the proven file, what travels with it, manifest and card."""
    with new_folder(target, "artifact") as folder:
        for file in candidate.folder.iterdir():
            _link(file, folder / file.name)
        facts = backend.finish(folder, source.spec, rung.precision)
        model_files = tuple(sorted(path.name for path in folder.glob(backend.model_pattern)))
        write_companions(folder, source.checkpoint, source.labels, candidate.io, candidate.parity)
        manifest = Manifest(
            format=backend.format,
            precision=candidate.precision,
            compute_precision=COMPUTE_PRECISION.get((backend.format, rung.precision), "fp32"),
            method=_method(backend.format, rung),
            model_file=backend.model_file,
            model_files=model_files,
            statistics=backend.inspect(folder / backend.model_file),
            source={"name": request.name, "checkpoint": source.checkpoint.hash},
            reference=_reference(request, source, candidate),
            simulated=backend.simulated,
            target=_json(folder / TARGET),
            placement=Placement.model_validate(placed) if (placed := _json(folder / PLACEMENT)) else None,
            attempts=tuple(attempt.model_dump(mode="json") for attempt in attempts),
            rebuild={
                "to": backend.format,
                "precision": rung.precision,
                "lengths": list(source.spec.lengths),
                "plan": rung.plan.model_dump(mode="json"),
                **({"device": request.device.name} if backend.simulated and request.device else {}),
                **({"tune": True} if target.name.endswith(TUNED) else {}),
            },
            versions=versions(),
            machine=machine(),
            notes=tuple(f"{name}: {value}" for name, value in facts.items()),
            files={},
        )
        write_card(folder, manifest, candidate.io, candidate.parity, source.labels)
        write_manifest(folder, manifest)
    return Artifact.load(target)


def _reference(request: ExportRequest, source: ExportSource, candidate: Candidate) -> dict[str, float]:
    """Metrics on the report split: of the artifact itself, the checkpoint it came from, and the trained teacher."""
    split, checkpoint = request.report, source.report
    if split is None or checkpoint is None:
        return {}
    score = candidate.score(split)
    teacher = {} if request.teacher is None else {"teacher": request.teacher.value}
    calibration = _known(
        checkpoint_ece=checkpoint.expected_calibration_error, artifact_ece=score.expected_calibration_error
    )
    values = {"checkpoint": checkpoint.value, "artifact": score.value, "examples": float(len(split))}
    return {**teacher, **values, **calibration}


def _known(**values: float | None) -> dict[str, float]:
    """Returns the values that a task has; only one label a text has a calibration error."""
    return {name: value for name, value in values.items() if value is not None}


def _method(format_name: Format, rung: Rung) -> str | None:
    """How ranges of activations are found; None where none are fixed. NPUs know fixed ranges only."""
    if rung.precision in ("w8a8", "w8a16", "mixed") and format_name == "onnx-qnn":
        return "static"
    return rung.plan.method if rung.precision in ("int8", "int4") else None


def _link(file: Path, target: Path) -> None:
    """Puts a file in a second place: a candidate that is measured is bundled twice, and large models are not copied."""
    try:
        os.link(file, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, target)


def _json(path: Path) -> dict[str, Any]:
    """Returns what a format compiled ahead of time left beside its files; nothing where it left none."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found
