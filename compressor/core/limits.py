"""Limits: what an artifact may cost; a recipe's ``accept`` and a budget file state them with the same keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compressor.core.schema import Record

Limit = Annotated[float | None, Field(default=None, gt=0, strict=True, allow_inf_nan=False)]
DropPoints = Annotated[float | None, Field(default=None, ge=0, strict=True, allow_inf_nan=False)]
"""A fall in accuracy, in percentage points."""


class Limits(Record):
    """Each key is optional."""

    p50_ms: Limit = None
    p90_ms: Limit = None
    p95_ms: Limit = None
    p99_ms: Limit = None
    """Percentiles of the inference time of one sentence at its own length."""
    total_p95_ms: Limit = None
    """Tokenisation included."""
    cold_ms: Limit = None
    """First inference of a fresh process; the slowest of all processes counts."""
    peak_memory_mb: Limit = None
    """Resident memory of the measuring process, in units of 10^6 bytes, runtime and tokenizer included."""
    size_mb: Limit = None
    """Model files only, in units of 10^6 bytes."""
    accuracy_drop_points: DropPoints = None
    """Percentage points below the reference in the artifact's manifest (the teacher, else its checkpoint)."""

    delegated: Annotated[float | None, Field(default=None, ge=0, le=1, strict=True, allow_inf_nan=False)] = None
    """Least share of operators that must run on the accelerator, for a file compiled ahead of time; 1.0: all."""

    def limits(self) -> dict[str, float]:
        """Returns {key: limit} of the limits that are set."""
        values = self.model_dump(include=set(Limits.model_fields), exclude_none=True)
        return {name: float(value) for name, value in values.items()}


MEASURED = ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "total_p95_ms", "cold_ms", "peak_memory_mb")
"""Limits that need a measurement; the others are read from the manifest."""
