"""P36: a clock that steps back, or a process that moves between unlike cores, gives no times: invalid, not slow."""

from __future__ import annotations

import pytest

from benchmarks.measure import measure
from benchmarks.subject import subject_of
from devices.conditions import Cluster, Conditions
from devices.profiles import parse_device
from devices.runner import RunnerResult, WarmUp, run_job
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


@pytest.mark.parametrize(
    ("cores", "top_mhz", "invalid"),
    [((1, 5), 2800.0, True), ((4, 5), 2800.0, False), ((1, 5), 1850.0, False), (None, 2800.0, False)],
)
def test_a_process_that_migrated_to_another_kind_of_core_is_invalid(
    tmp_path, monkeypatch, cores: tuple[int, ...] | None, top_mhz: float, invalid: bool
) -> None:
    clusters = (Cluster(cpus="0-3", top_mhz=1800.0), Cluster(cpus="4 5 6 7", top_mhz=top_mhz))
    monkeypatch.setattr(LocalTarget, "conditions", lambda self: Conditions(clock_s=1.0, cores=8, clusters=clusters))

    def job(*arguments, **options) -> RunnerResult:
        found = run_job(*arguments, **options)
        assert found.cores, "the runner on Linux tells the cores it used"
        return found.model_copy(update={"cores": cores})

    monkeypatch.setattr("benchmarks.measure.run_job", job)
    quick = WarmUp(min_runs=1, max_runs=1, max_seconds=0.1)
    subject = subject_of(tiny_artifact(tmp_path / "onnx-fp32"))
    (found,) = measure([subject], SENTENCES, device=parse_device("host"), runs=10, processes=1, warmup=quick)
    assert (found.invalid_reason is not None) == invalid
    if invalid:
        assert "process 1 migrated between cores of different kinds (0-3 and 4 5 6 7)" in found.invalid_reason
