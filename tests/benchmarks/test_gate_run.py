"""The loop of looks, with a stand-in that measures: how much is measured, and what becomes of verdicts on the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.budget import Budget
from benchmarks.gate_run import BASELINE, GateRun, run_gate
from benchmarks.looks import Need, plan_looks
from benchmarks.merging import merged
from compressor.core.artifact import Artifact
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement

NEEDS = [Need(share=0.95)]
LOOKS = plan_looks(NEEDS)
P95 = float(np.exp(0.1 * 1.6448536269514722))


class Machine:
    """Gives independent times; ``scale`` by subject, or by call."""

    def __init__(self, scale: Callable[[str, int], float] = lambda name, call: 1.0, **changes) -> None:
        self.random = np.random.default_rng(0)
        self.scale, self.changes = scale, changes
        self.calls: list[tuple[tuple[str, ...], int, int, int]] = []

    def take(self, subjects, runs, processes, seed):
        self.calls.append((tuple(item.name for item in subjects), runs, processes, seed))
        return [
            measurement(
                self.scale(item.name, len(self.calls)) * np.exp(0.1 * self.random.normal(size=runs)),
                subject=item.name,
                subject_hash=item.hash,
                processes=processes,
                **self.changes,
            )
            for item in subjects
        ]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory) -> list[Artifact]:
    folder = tmp_path_factory.mktemp("gate-run")
    return [tiny_artifact(folder / name) for name in ("onnx-fp32", "onnx-int8")]


def run(artifacts: list[Artifact], machine: Machine, *budgets: Budget, **options) -> GateRun:
    return run_gate(artifacts, budgets, timed=artifacts, looks=LOOKS, needs=NEEDS, take=machine.take, **options)


def test_a_clear_case_ends_at_the_first_look(artifacts) -> None:
    for factor, outcome in ((1.5, "pass"), (0.7, "over_budget")):
        machine = Machine()
        found = run(artifacts[:1], machine, Budget(device="host", p95_ms=factor * P95)).verdict
        assert (found.verdict, found.looks) == (outcome, 1)
        assert sum(call[1] for call in machine.calls) == LOOKS[0].runs


def test_an_unclear_case_stops_at_the_last_look_and_is_inconclusive(artifacts) -> None:
    machine = Machine()
    found = run(artifacts[:1], machine, Budget(device="host", p95_ms=P95))
    assert found.verdict.exit_code == 3
    assert [sum(call[1] for call in machine.calls[: number + 1]) for number in range(4)] == [x.runs for x in LOOKS]
    assert len(found.measurements[0].runs) == LOOKS[-1].runs
    assert found.measurements[0].processes == LOOKS[-1].processes
    assert len({call[3] for call in machine.calls}) == len(LOOKS), "each look draws its sentences anew"


def test_what_is_decided_is_measured_no_further(artifacts) -> None:
    machine = Machine(lambda name, call: 0.5 if name == "onnx-int8" else 1.0)
    found = run(artifacts, machine, Budget(device="host", p95_ms=P95)).verdict
    assert machine.calls[0][0] == ("onnx-fp32", "onnx-int8")
    assert {call[0] for call in machine.calls[1:]} == {("onnx-fp32",)}
    assert [check.verdict for check in found.checks] == ["inconclusive", "pass"]


def test_a_verdict_once_reached_stays(artifacts) -> None:
    """The machine becomes twice as slow after the first look: the limit that was decided there is not judged again."""
    machine = Machine(lambda name, call: 1.0 if call == 1 else 2.0)
    found = run(artifacts[:1], machine, Budget(device="host", p95_ms=1.5 * P95, p50_ms=1.0)).verdict
    outcomes = {check.name: check for check in found.checks}
    assert outcomes["p95_ms"].verdict == "pass"
    assert outcomes["p95_ms"].runs == LOOKS[0].runs
    assert outcomes["p50_ms"].verdict == "over_budget"


def test_a_throttled_device_ends_the_gate_as_invalid(artifacts) -> None:
    machine = Machine(invalid_reason="throttled")
    found = run(artifacts[:1], machine, Budget(device="host", p95_ms=P95)).verdict
    assert found.exit_code == 4
    assert len(machine.calls) == 1


def test_a_baseline_is_measured_beside_the_artifact(artifacts, tmp_path) -> None:
    old = tiny_artifact(tmp_path / "onnx-old")
    machine = Machine(lambda name, call: 1.0 if name.startswith(BASELINE) else 1.5)
    budget = Budget(device="host", p50_regression_percent=20.0)
    found = run(artifacts[:1], machine, budget, baseline=old)
    assert machine.calls[0][0] == ("onnx-fp32", f"{BASELINE}onnx-old")
    assert found.verdict.verdict == "over_budget"
    assert found.verdict.checks[0].value == pytest.approx(50, abs=5)


def test_sizes_alone_need_no_machine(artifacts) -> None:
    machine = Machine()
    found = run_gate(
        artifacts, [Budget(device="host", size_mb=1.0)], timed=[], looks=LOOKS, needs=[], take=machine.take
    )
    assert found.verdict.verdict == "pass"
    assert machine.calls == []
    assert found.verdict.plan == ""


def test_merging_numbers_processes_on_and_keeps_what_is_worst() -> None:
    first = measurement([1.0, 2.0], processes=2, peak_memory_mb=90.0)
    second = measurement([3.0, 4.0, 5.0], processes=1, invalid_reason="hot")
    both = merged(merged(None, first), second)
    assert both.runs.inference_ms == (1.0, 2.0, 3.0, 4.0, 5.0)
    assert both.runs.process == (0, 1, 2, 2, 2)
    assert (both.processes, both.peak_memory_mb, both.invalid_reason) == (3, 90.0, "hot")
    assert both.cold_ms == (*first.cold_ms, *second.cold_ms)
