"""A measurement: every single time of one run, with the device's condition before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from compressor.core.errors import UsageError
from compressor.core.folders import disk_errors, write_json
from compressor.core.schema import Record
from compressor.core.stored import read_record


class Runs(Record):
    """The single runs, column by column; entry i of every column is the i-th timed run, in the order it ran."""

    sentence: tuple[int, ...]
    """Index into the measurement's sentences."""
    tokens: tuple[int, ...]
    """Tokens of the sentence itself, specials included, after truncation."""
    length: tuple[int, ...]
    """Tokens the model was run at (the bucket, or ``tokens`` where lengths are dynamic)."""
    tokenize_ms: tuple[float, ...] | None
    """None where it was not measured: a device without a tokenizer gets its sentences tokenised."""
    inference_ms: tuple[float, ...]
    process: tuple[int, ...]
    """Which process restart the run belongs to."""

    @model_validator(mode="after")
    def _same_lengths(self) -> Runs:
        if len({len(column) for column in self.columns().values() if column is not None}) != 1:
            raise ValueError("the columns of runs have different lengths")
        return self

    def columns(self) -> dict[str, tuple[Any, ...] | None]:
        """Returns {column name: values}."""
        return {name: getattr(self, name) for name in type(self).model_fields}

    def __len__(self) -> int:
        return len(self.sentence)


class Measurement(Record):
    """One file beside the artifacts: what was measured, where, how, and every time."""

    schema_version: int = 1
    subject: str
    """Name of the artifact, or of a baseline such as ``teacher-torch-fp32-padded-128``."""
    subject_hash: str
    device: str
    """Profile name, and where it was reached: ``host@local``."""
    fingerprint: dict[str, str]
    """The device, its software and, where the processes were pinned to cores, ``cpus``: their numbers."""
    runtime: str
    """Name and version of the runtime, e.g. ``onnxruntime 1.32.0``."""
    threads: int = Field(ge=1)
    warmup_runs: int = Field(ge=0)
    processes: int = Field(ge=1)
    cold_ms: tuple[float, ...]
    """First inference of each process."""
    load_ms: tuple[float, ...]
    """Time to load the model, per process."""
    peak_memory_mb: float | None = None
    conditions_before: dict[str, Any]
    conditions_after: dict[str, Any]
    invalid_reason: str | None = None
    """Why the device was not in a measurable condition; None where it was."""
    truncated_sentences: int = 0
    seed: int
    runs: Runs

    def save(self, path: Path) -> None:
        """Writes the measurement as JSON, atomically."""
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def load(cls, path: Path) -> Measurement:
        """Reads a saved measurement.

        Raises:
            UsageError: the file is missing or is no measurement.
        """
        return read_record(cls, path, error=UsageError, remedy="name a file that 'compressor bench -o DIR' wrote")
