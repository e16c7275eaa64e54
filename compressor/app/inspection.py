"""``inspect``: what is in a file, as found."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import Field

from compressor.app.inputs import find_model
from compressor.core.artifact import MANIFEST, Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ArtifactError, ModelError
from compressor.core.schema import Record
from compressor.families import ADAPTERS
from export.backend import backend_for
from export.tflite.delegates import DelegateReport, delegate_reports

_TYPES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "I8": "int8"}
_SUFFIXES = {".onnx": "onnx", ".tflite": "tflite"}


class Inspection(Record):
    """The figures of a model file or folder; ``precision`` may be ``mixed``."""

    path: str
    format: str
    precision: str
    size_bytes: int
    unique_parameter_bytes: int
    parameters: int
    lengths: tuple[int, ...]
    """Empty where any length runs."""
    max_tokens: int | None = None
    """The most tokens the model has positions for, where that is written in the folder."""
    operators: dict[str, int]
    gemm_types: dict[str, int]
    operator_types: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Operators that read a stored weight matrix, by the type that matrix is stored in."""
    parameter_bytes: dict[str, int] = Field(default_factory=dict)
    """``unique_parameter_bytes`` by type."""
    opset: int | None = None
    labels: tuple[str, ...] = ()
    history: tuple[dict[str, object], ...] = ()
    """Stages that made a checkpoint, from its ``compression.json``."""
    delegates: tuple[DelegateReport, ...] = ()
    """For a TFLite file: what each device's delegates would refuse, by rule; not run on hardware."""
    sha256_verified: bool = False
    """True where every file's hash was compared with a manifest."""


def inspect(path: str | Path) -> Inspection:
    """Returns what is in an artifact folder, a model folder, or a bare ``.onnx`` or ``.tflite`` file of any maker.

    Raises:
        ArtifactError: a damaged artifact or file.
        ModelError: neither an artifact nor a model.
    """
    place = Path(path)
    if (place / MANIFEST).is_file():
        artifact = Artifact.load(place)
        statistics = backend_for(artifact.manifest.format).inspect(artifact.model_path)
        found = statistics.model_copy(update={"size_bytes": artifact.manifest.statistics.size_bytes})
        return Inspection(
            path=str(path), labels=artifact.labels, sha256_verified=True, delegates=_delegates(artifact.model_path),
            **{**found.model_dump(), "format": artifact.manifest.format, "lengths": artifact.io.lengths,
               "max_tokens": artifact.io.max_tokens},
        )  # fmt: skip
    if place.is_file():
        if place.suffix not in _SUFFIXES:
            raise ArtifactError(
                f"{path} is no model file that can be read here; expected {' or '.join(_SUFFIXES)}",
                remedy="an engine or plan is read where it was built: inspect its artifact folder instead",
            )
        statistics = backend_for("onnx" if place.suffix == ".onnx" else "tflite").inspect(place)
        return Inspection(path=str(path), delegates=_delegates(place), **statistics.model_dump())
    return _inspect_checkpoint(find_model(path), str(path))


def _delegates(model: Path) -> tuple[DelegateReport, ...]:
    return delegate_reports(model) if model.suffix == ".tflite" else ()


def _inspect_checkpoint(checkpoint: Checkpoint, path: str) -> Inspection:
    """Reads the safetensors headers alone; a tensor that is stored once counts once."""
    types: Counter[str] = Counter()
    stored: Counter[str] = Counter()
    parameters = size = 0
    for file in checkpoint.path.glob("*.safetensors"):
        header = _safetensors_header(file)
        for tensor in header.values():
            begin, end = tensor["data_offsets"]
            count = 1
            for extent in tensor["shape"]:
                count *= extent
            parameters += count
            size += end - begin
            kind = _TYPES.get(tensor["dtype"], "other")
            stored[kind] += end - begin
            types[kind] += len(tensor["shape"]) > 1
    types = +types
    return Inspection(
        path=path,
        format="checkpoint",
        precision=next(iter(types)) if len(types) == 1 else "mixed",
        size_bytes=checkpoint.size_bytes,
        unique_parameter_bytes=size,
        parameters=parameters,
        lengths=(),
        max_tokens=_positions(checkpoint),
        operators={},
        gemm_types=dict(types),
        parameter_bytes=dict(stored),
        labels=checkpoint.labels,
        history=tuple(checkpoint.compression.get("history", ())),
    )


def _positions(checkpoint: Checkpoint) -> int | None:
    """Returns how many tokens fit, from ``config.json`` alone: transformers is not imported for it."""
    adapter = ADAPTERS.get(str(checkpoint.config.get("model_type")))
    if adapter is None or "max_position_embeddings" not in checkpoint.config:
        return None
    return adapter.max_tokens(SimpleNamespace(**checkpoint.config))


def _safetensors_header(file: Path) -> dict[str, Any]:
    """Returns name to dtype, shape and offsets of every tensor (safetensors format: 8 bytes of length, then JSON).

    Raises:
        ModelError: the file is cut off or is no safetensors file (a git-LFS pointer, for example).
    """
    try:
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > file.stat().st_size:
                raise ValueError("the header is longer than the file")
            header: dict[str, Any] = json.loads(stream.read(length))
    except ValueError as error:
        raise ModelError(f"{file} is no whole safetensors file: {error}", remedy="download or save it again") from error
    header.pop("__metadata__", None)
    return header
