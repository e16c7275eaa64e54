from __future__ import annotations

import numpy as np
import pytest

from benchmarks.statistics import summary
from compressor.app.reporting import _conditions, _speed_ups
from tests.benchmarks.measurements import measurement


def times(milliseconds: float, subject: str, **changes):
    spread = np.random.default_rng(0).lognormal(0.0, 0.05, 200)
    return measurement(milliseconds * spread, subject=subject, **changes)


def test_every_artifact_is_compared_with_every_baseline_at_the_median() -> None:
    found = _speed_ups([times(2.0, "onnx-int8"), times(5.0, "onnx-fp32")], [times(20.0, "torch"), times(4.0, "int8")])
    assert [(item.artifact, item.baseline) for item in found] == [
        ("onnx-int8", "torch"), ("onnx-int8", "int8"), ("onnx-fp32", "torch"), ("onnx-fp32", "int8"),
    ]  # fmt: skip
    assert [item.ratio for item in found] == pytest.approx([10.0, 2.0, 4.0, 0.8])
    assert all(item.low <= item.ratio <= item.high for item in found)


def test_invalid_or_too_few_times_are_not_compared() -> None:
    invalid = times(2.0, "onnx-int8", invalid_reason="memory ran out")
    few = times(2.0, "onnx-int8", processes=2)
    assert _speed_ups([invalid, few], [times(4.0, "int8")]) == ()


def test_the_state_of_the_machine_is_said_once() -> None:
    reason = "the hypervisor took 40% of the CPU time"
    rows = [summary(times(2.0, name, invalid_reason=reason)) for name in ("onnx-int8", "torch")]
    assert _conditions(rows) == (
        f"Times are invalid and no figure of the models: {reason}.",
        "While the times were measured: turbo clocks are on.",
    )
