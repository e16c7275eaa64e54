"""Measurements made by hand, whose distribution is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compressor.core.measurement import Measurement, Runs


def measurement(
    inference_ms: Sequence[float],
    *,
    subject: str = "onnx-int8",
    subject_hash: str = "f" * 64,
    device: str = "host@local",
    processes: int = 5,
    lengths: Sequence[int] = (16,),
    tokenize_ms: float = 0.1,
    invalid_reason: str | None = None,
    cold_ms: Sequence[float] = (9.0, 12.0),
    peak_memory_mb: float | None = 80.0,
) -> Measurement:
    """A measurement with these inference times; lengths repeat, and processes are equal consecutive parts."""
    count = len(inference_ms)
    length = tuple(lengths[index % len(lengths)] for index in range(count))
    return Measurement(
        subject=subject,
        subject_hash=subject_hash,
        device=device,
        fingerprint={"cpu": "test"},
        runtime="onnxruntime 0.0",
        threads=1,
        warmup_runs=10,
        processes=processes,
        cold_ms=tuple(cold_ms),
        load_ms=(50.0, 60.0),
        peak_memory_mb=peak_memory_mb,
        conditions_before={},
        conditions_after={"notes": ["turbo clocks are on"]},
        invalid_reason=invalid_reason,
        seed=0,
        runs=Runs(
            sentence=tuple(range(count)),
            tokens=length,
            length=length,
            tokenize_ms=(tokenize_ms,) * count,
            inference_ms=tuple(float(value) for value in inference_ms),
            process=tuple(int(part) for part in np.arange(count) * processes // count),
        ),
    )
