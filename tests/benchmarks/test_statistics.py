from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.statistics import autocorrelation, percentile, percentile_interval, summary
from tests.benchmarks.measurements import measurement

DESIGN_KEYS = {
    "device",
    "threads",
    "runs",
    "p50_ms",
    "p90_ms",
    "p95_ms",
    "p99_ms",
    "total_p95_ms",
    "by_length",
    "tokenize_p50_ms",
}


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 200])
def test_percentile_is_the_smallest_time_that_enough_runs_do_not_exceed(share: float, count: int) -> None:
    values = np.random.default_rng(count).lognormal(size=count)
    brute = min(value for value in values if np.mean(values <= value) >= share - 1e-12)
    assert percentile(values, share) == brute


def test_interval_is_the_order_statistics_that_brute_force_finds() -> None:
    count, share, tail = 60, 0.9, 0.025
    values = np.arange(1.0, count + 1)

    def at_most(k: int) -> float:
        return sum(math.comb(count, i) * share**i * (1 - share) ** (count - i) for i in range(k + 1))

    low = max(k for k in range(1, count + 1) if at_most(k - 1) < tail)
    high = min(k for k in range(1, count + 1) if at_most(k - 1) >= 1 - tail)
    found = percentile_interval(values, share)
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
def test_interval_covers_the_true_percentile_as_often_as_stated(share: float) -> None:
    random, trials, covered = np.random.default_rng(1), 600, 0
    for _ in range(trials):
        found = percentile_interval(random.uniform(size=150), share)
        covered += (found.low is None or found.low <= share) and (found.high is None or share <= found.high)
    assert covered / trials >= 0.93


def test_too_few_runs_leave_a_side_open() -> None:
    assert percentile_interval(np.arange(20.0), 0.99).high is None
    assert percentile_interval(np.arange(3.0), 0.5).low is None


def test_autocorrelation_tells_independent_from_dependent_runs() -> None:
    random = np.random.default_rng(2)
    independent = random.lognormal(size=500)
    walk = np.cumsum(random.normal(size=500))
    one = np.zeros(500)
    assert abs(autocorrelation(independent, one)) < 0.15
    assert autocorrelation(walk, one) > 0.9
    assert autocorrelation(np.ones(500), one) == 0.0


def test_autocorrelation_sees_processes_that_differ_and_ignores_their_borders() -> None:
    process = np.repeat(np.arange(5), 40)
    random = np.random.default_rng(3)
    shifted = random.normal(size=200) + 3 * (process % 2)
    assert autocorrelation(shifted, process) > 0.5
    assert autocorrelation([1.0, 2.0], [0, 1]) == 0.0


def test_summary_has_the_keys_of_the_command_line_and_the_right_numbers() -> None:
    times = np.arange(1.0, 201.0)
    found = summary(measurement(times, lengths=(16, 32), tokenize_ms=0.5))
    assert set(found.model_dump()) >= DESIGN_KEYS
    assert (found.p50_ms, found.p95_ms, found.p99_ms) == (100, 190, 198)
    assert found.total_p95_ms == 190.5
    assert found.tokenize_p50_ms == 0.5
    assert found.runs == 200
    assert found.cold_ms == 12.0
    assert {length: row.runs for length, row in found.by_length.items()} == {16: 100, 32: 100}
    assert found.by_length[16].p50_ms == 99
    assert found.by_length[32].p50_ms == 100
    assert found.notes == ("turbo clocks are on",)


def test_many_lengths_are_gathered_to_powers_of_two() -> None:
    found = summary(measurement(np.ones(60), lengths=tuple(range(3, 63))))
    assert list(found.by_length) == [8, 16, 32, 64]
    assert sum(row.runs for row in found.by_length.values()) == 60
