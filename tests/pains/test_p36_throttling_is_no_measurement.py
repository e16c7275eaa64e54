"""P36: a throttling phone gives no signal. Its numbers are marked invalid, and the gate says so (exit 4)."""

from __future__ import annotations

from benchmarks.budget import Budget
from benchmarks.gate import judge as judge_budget
from benchmarks.measure import measure
from benchmarks.subject import subject_of
from compressor.core.verdict import Verdict
from devices.conditions import Conditions
from devices.profiles import parse_device
from devices.runner import WarmUp
from devices.targets.local import LocalTarget
from tests.benchmarks.artifacts import tiny_artifact
from tests.models import SENTENCES


def test_a_run_that_got_hot_is_invalid_with_exit_code_4_however_fast_it_was(tmp_path, monkeypatch) -> None:
    readings = iter([0, 3])

    def conditions(self: LocalTarget) -> Conditions:
        return Conditions(clock_s=0, cores=2, thermal_status=next(readings))

    monkeypatch.setattr(LocalTarget, "conditions", conditions)
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    quick = WarmUp(min_runs=1, max_runs=1, max_seconds=0.1)
    (found,) = measure(
        [subject_of(artifact)], SENTENCES, device=parse_device("host"), runs=60, processes=1, warmup=quick
    )
    assert found.invalid_reason is not None
    assert "let it cool" in found.invalid_reason
    checks = judge_budget(Budget(device="host", artifact="*", p95_ms=1000.0), artifact, found)
    assert [check.verdict for check in checks] == ["invalid"]
    assert Verdict.of(checks).exit_code == 4
