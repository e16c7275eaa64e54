"""Joins the measurements of successive looks into one, as if all processes had been of one run."""

from __future__ import annotations

from itertools import chain
from typing import Any

from compressor.core.measurement import Measurement, Runs


def merged(earlier: Measurement | None, later: Measurement) -> Measurement:
    """Returns one measurement with the runs of both, in order; processes are numbered on.

    It is invalid if either part is, and its conditions are those before the first and after the last process.
    """
    if earlier is None:
        return later
    first, second = earlier.runs.columns(), later.runs.columns()
    offset = max(earlier.runs.process, default=-1) + 1
    second["process"] = tuple(number + offset for number in later.runs.process)
    columns: dict[str, Any] = {
        name: None if before is None or (after := second[name]) is None else (*before, *after)
        for name, before in first.items()
    }
    peaks = [value for value in (earlier.peak_memory_mb, later.peak_memory_mb) if value is not None]
    notes = dict.fromkeys(chain(*(part.conditions_after.get("notes", ()) for part in (earlier, later))))
    return later.model_copy(
        update={
            "runs": Runs(**columns),
            "warmup_runs": earlier.warmup_runs + later.warmup_runs,
            "processes": earlier.processes + later.processes,
            "cold_ms": (*earlier.cold_ms, *later.cold_ms),
            "load_ms": (*earlier.load_ms, *later.load_ms),
            "peak_memory_mb": max(peaks, default=None),
            "conditions_before": earlier.conditions_before,
            "conditions_after": {**later.conditions_after, "notes": list(notes)},
            "invalid_reason": earlier.invalid_reason or later.invalid_reason,
            "truncated_sentences": max(earlier.truncated_sentences, later.truncated_sentences),
            "seed": earlier.seed,
        }
    )
