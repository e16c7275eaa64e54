from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.looks import runs_needed
from benchmarks.percentile_test import judge_percentile

P95 = float(np.exp(0.2 * 1.6448536269514722))
"""True p95 of exp(0.2 Z)."""
PROCESS = np.repeat(np.arange(5), 40)


def outcomes(make, budget: float, *, trials: int = 250, process=PROCESS) -> Counter[str]:
    return Counter(judge_percentile(make(), process, budget, 0.95).outcome for _ in range(trials))


def autoregressive(random: np.random.Generator, rho: float, parts: int, count: int) -> np.ndarray:
    values = np.empty((parts, count))
    values[:, 0] = random.normal(size=parts)
    for i in range(1, count):
        values[:, i] = rho * values[:, i - 1] + np.sqrt(1 - rho**2) * random.normal(size=parts)
    return np.exp(0.2 * values.ravel())


def test_runs_needed_are_the_smallest_that_can_pass() -> None:
    assert runs_needed(0.95) == 59
    assert runs_needed(0.99) == 299
    for share in (0.5, 0.9, 0.95, 0.99):
        needed = runs_needed(share)
        times = np.ones(needed)
        assert judge_percentile(times, times, 2.0, share).outcome == "pass"
        fewer = judge_percentile(times[1:], times[1:], 2.0, share)
        assert fewer.outcome == "inconclusive"
        assert f"at least {needed}" in fewer.detail


@pytest.mark.parametrize(
    ("over", "outcome"), [(4, "pass"), (5, "inconclusive"), (15, "inconclusive"), (16, "over_budget")]
)
def test_limits_for_200_runs_are_those_of_the_binomial_distribution(over: int, outcome: str) -> None:
    times = np.ones(200)
    times[np.linspace(0, 199, over).astype(int)] = 3.0
    judged = judge_percentile(times, np.zeros(200), 2.0, 0.95)
    assert (judged.outcome, judged.over, judged.runs) == (outcome, over, 200)


def test_a_time_equal_to_the_budget_is_within_it() -> None:
    assert judge_percentile(np.full(100, 2.0), np.zeros(100), 2.0, 0.95).over == 0


def test_with_the_budget_exactly_met_each_error_stays_within_its_rate() -> None:
    random = np.random.default_rng(0)
    found = outcomes(lambda: np.exp(0.2 * random.normal(size=200)), P95, trials=1000)
    assert found["pass"] <= 65  # 5 % of 1000 and two standard deviations
    assert found["over_budget"] <= 65
    assert found["inconclusive"] >= 870


def test_a_clear_case_is_decided() -> None:
    random = np.random.default_rng(1)
    assert outcomes(lambda: np.exp(0.2 * random.normal(size=200)), 1.3 * P95, trials=100)["pass"] >= 95
    assert outcomes(lambda: np.exp(0.2 * random.normal(size=200)), 0.75 * P95, trials=100)["over_budget"] >= 95


@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_dependent_runs_do_not_raise_the_error_rates(rho: float) -> None:
    random = np.random.default_rng(2)
    found = outcomes(lambda: autoregressive(random, rho, 5, 40), P95)
    assert found["pass"] <= 20  # 5 % of 250 and two standard deviations
    assert found["over_budget"] <= 20


def test_thinning_is_said_and_counted() -> None:
    random = np.random.default_rng(4)
    process = np.repeat(np.arange(5), 200)
    judged = judge_percentile(autoregressive(random, 0.6, 5, 200), process, 1.5 * P95, 0.95)
    assert judged.outcome == "pass"
    assert judged.runs < 1000
    assert "1 of" in judged.detail


def test_processes_that_differ_do_not_pass_by_luck_but_pass_by_a_margin() -> None:
    random = np.random.default_rng(5)
    true_p95 = float(np.exp(np.sqrt(0.2**2 + 0.2**2) * 1.6448536))

    def make() -> np.ndarray:
        return np.exp(0.2 * random.normal(size=200) + np.repeat(0.2 * random.normal(size=5), 40))

    at_the_budget = outcomes(make, true_p95)
    assert at_the_budget["pass"] <= 20
    assert at_the_budget["over_budget"] <= 20
    far_below = outcomes(make, 5 * true_p95, trials=100)
    assert far_below["pass"] >= 90
    assert far_below["over_budget"] == 0


def test_dependence_with_too_few_processes_decides_nothing() -> None:
    process = np.repeat([0, 1], 100)
    times = 1 + process + 0.1 * np.random.default_rng(6).uniform(size=200)
    judged = judge_percentile(times, process, 5.0, 0.95)
    assert judged.outcome == "inconclusive"
    assert "processes" in judged.detail
