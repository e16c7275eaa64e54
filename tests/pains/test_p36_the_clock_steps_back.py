"""P36: a device that restarts, or whose clock is set back, in the middle of a measurement gives no times."""

from __future__ import annotations

from benchmarks.measure import measure
from benchmarks.subject import subject_of
from devices.conditions import Conditions
from devices.profiles import parse_device
from devices.runner import WarmUp
from devices.targets.local import LocalTarget
from tests.benchmarks.artifacts import tiny_artifact
from tests.models import SENTENCES


def test_a_clock_that_steps_back_makes_the_measurement_invalid(tmp_path, monkeypatch) -> None:
    readings = iter([500.0, 20.0])
    monkeypatch.setattr(LocalTarget, "conditions", lambda self: Conditions(clock_s=next(readings), cores=2))
    quick = WarmUp(min_runs=1, max_runs=1, max_seconds=0.1)
    subject = subject_of(tiny_artifact(tmp_path / "onnx-fp32"))
    (found,) = measure([subject], SENTENCES, device=parse_device("host"), runs=10, processes=1, warmup=quick)
    assert "stepped back by 480.0 s" in found.invalid_reason
