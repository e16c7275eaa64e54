"""The gate's error rates and power on simulated machines whose true percentile is known; seeds are fixed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.budget import Budget
from benchmarks.gate import gate
from benchmarks.looks import ALPHA, Need, plan_looks
from benchmarks.studies.gate_errors import (
    CASES,
    INDEPENDENT,
    MARKS,
    decide,
    process_of,
    simulate,
    true_percentile,
)
from compressor.core.verdict import Verdict
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement

GATES = 250
ALLOWED = ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / GATES)
"""The stated rate and two standard deviations of what so few gates show of it."""


@pytest.mark.parametrize("name", CASES)
def test_at_the_budget_neither_error_is_above_its_rate(name: str) -> None:
    found = simulate(CASES[name], gates=GATES, factor=1.0, seed=1)
    assert found.passed <= ALLOWED
    assert found.over <= ALLOWED


@pytest.mark.parametrize("name", INDEPENDENT)
def test_ten_percent_off_is_decided_rightly_with_at_most_500_runs(name: str) -> None:
    assert simulate(CASES[name], gates=GATES, factor=1.1, seed=2).passed >= 0.95
    assert simulate(CASES[name], gates=GATES, factor=1 / 1.1, seed=3).over >= 0.95
    assert plan_looks([Need(share=0.95)])[-1].runs == 500


def test_a_clear_case_takes_100_runs() -> None:
    for factor in (1.5, 0.7):
        found = simulate(CASES["lognormal, sigma 0.1"], gates=100, factor=factor, seed=4)
        assert max(found.passed, found.over) == 1.0
        assert found.runs <= 105


def test_the_errors_hold_for_all_limits_of_a_gate_together(tmp_path) -> None:
    """Four artifacts, each exactly at both of its budgets: one wrong answer anywhere is an error of the gate."""
    random = np.random.default_rng(5)
    artifacts = [tiny_artifact(tmp_path / f"onnx-{name}") for name in "abcd"]
    p50, p95 = 1.0, float(np.exp(0.2 * 1.6448536269514722))
    verdicts: list[Verdict] = []
    for _ in range(150):
        measured = [
            measurement(np.exp(0.2 * random.normal(size=200)), subject=item.name, subject_hash=item.hash)
            for item in artifacts
        ]
        verdicts.append(gate(artifacts, measured, [Budget(device="host", p50_ms=p50, p95_ms=p95)]))
    allowed = ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / len(verdicts))
    assert sum(item.verdict == "pass" for item in verdicts) / len(verdicts) <= allowed
    assert sum(item.verdict == "over_budget" for item in verdicts) / len(verdicts) <= allowed


def test_one_limit_that_is_missed_does_not_pass_in_the_shade_of_clear_ones(tmp_path) -> None:
    random = np.random.default_rng(6)
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    p95 = float(np.exp(0.2 * 1.6448536269514722))
    passed = 0
    for _ in range(200):
        times = np.exp(0.2 * random.normal(size=200))
        measured = measurement(times, subject=artifact.name, subject_hash=artifact.hash)
        passed += gate([artifact], [measured], [Budget(device="host", p50_ms=9.0, p95_ms=p95)]).verdict == "pass"
    assert passed / 200 <= ALPHA + 2 * np.sqrt(ALPHA * (1 - ALPHA) / 200)


def test_the_plain_comparison_of_the_sample_percentile_is_what_the_gate_is_for() -> None:
    """The rate that the gate replaces: comparing the sample p95 is wrong about half the time at the budget."""
    make = CASES["lognormal, sigma 0.2"]
    process = process_of(plan_looks([Need(share=0.95)]))
    budget = true_percentile(make, process)
    rows = make(np.random.default_rng(7), GATES, process)[:, :200]
    assert np.mean(np.quantile(rows, 0.95, axis=1) > budget) > 0.3


def test_more_tests_make_the_wrong_over_budget_rarer() -> None:
    looks = plan_looks([Need(share=0.95)])
    process = process_of(looks)
    make = CASES["lognormal, sigma 0.2"]
    budget = true_percentile(make, process)
    rows = make(np.random.default_rng(8), GATES, process)
    alone, among_ten = (
        [decide(row, process, looks, budget, tests=tests)[0] == "over_budget" for row in rows] for tests in (1, 10)
    )
    assert sum(among_ten) < sum(alone)


def test_the_document_holds_the_table() -> None:
    from pathlib import Path

    text = (Path(__file__).parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")
    held = text.split(MARKS[0])[1].split(MARKS[1])[0]
    assert all(name in held for name in CASES)
