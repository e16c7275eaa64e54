from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from benchmarks.budget import Budget
from benchmarks.comparison import check_comparable, ratio
from benchmarks.gate import Baseline, gate
from compressor.core.errors import UsageError
from compressor.core.measurement import Measurement
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement


def pair(random: np.random.Generator, factor: float, *, processes: int = 10, shared: float = 0.1) -> list[Measurement]:
    """Two interleaved subjects: what slows one process slows the other's of the same round."""
    count = 20 * processes
    rounds = np.repeat(shared * random.normal(size=processes), 20)
    ours, theirs = (np.exp(rounds + 0.05 * random.normal(size=count)) for _ in range(2))
    return [measurement(factor * ours, processes=processes), measurement(theirs, subject="old", processes=processes)]


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    found = [ratio(*pair(random, 1.2), 0.5, paired=True) for _ in range(200)]
    assert sum(item.high < 1.2 for item in found) <= 20  # 5 % of 200 and three standard deviations
    assert sum(item.low > 1.2 for item in found) <= 20
    assert np.median([item.ratio for item in found]) == pytest.approx(1.2, rel=0.01)


def test_interleaving_makes_the_interval_narrow_where_the_machine_is_not_quiet() -> None:
    subjects = pair(np.random.default_rng(1), 1.05)
    together, apart = (ratio(*subjects, 0.5, paired=paired) for paired in (True, False))
    assert together.high / together.low < 0.5 * (apart.high / apart.low - 1) + 1


def test_stricter_errors_widen_the_interval_and_seeds_repeat_it() -> None:
    subjects = pair(np.random.default_rng(2), 1.0)
    highs = [ratio(*subjects, 0.95, paired=True, alpha=alpha).high for alpha in (0.05, 0.02, 0.005)]
    assert all(wider > narrower for narrower, wider in pairwise(highs))
    assert ratio(*subjects, 0.95, paired=True) == ratio(*subjects, 0.95, paired=True)


def test_too_few_processes_give_no_interval() -> None:
    subjects = [measurement(np.ones(20), processes=2), measurement(np.ones(20), processes=2)]
    assert ratio(*subjects, 0.5, paired=True) is None


@pytest.mark.parametrize(
    ("factor", "outcome"), [(1.0, "pass"), (1.3, "over_budget"), (1.10, "inconclusive"), (0.7, "pass")]
)
def test_a_regression_is_judged_against_its_limit(tmp_path, factor: float, outcome: str) -> None:
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    ours, theirs = pair(np.random.default_rng(3), factor)
    ours = ours.model_copy(update={"subject": artifact.name, "subject_hash": artifact.hash})
    budget = Budget(device="host", p50_regression_percent=10.0)
    verdict = gate([artifact], [ours], [budget], baseline=Baseline(measurement=theirs, interleaved=True))
    assert verdict.verdict == outcome
    assert "bootstrap interval" in verdict.checks[0].detail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"device": "host@ssh:me@other"}, "device"),
        ({"runtime": "onnxruntime 9.9"}, "runtime 'onnxruntime 9.9' instead of 'onnxruntime 0.0'"),
        ({"threads": 2}, "threads 2 instead of 1"),
        ({"fingerprint": {"cpu": "another"}}, "cpu 'another' instead of 'test'"),
        ({"fingerprint": {"cpu": "test", "kernel": "7"}}, "kernel '7' instead of None"),
        ({"invalid_reason": "throttled"}, "an invalid measurement"),
    ],
)
def test_a_stored_baseline_of_another_device_or_version_is_refused(change: dict, said: str) -> None:
    ours = measurement(np.ones(100))
    check_comparable(ours, ours)
    with pytest.raises(UsageError) as caught:
        check_comparable(ours, ours.model_copy(update=change))
    assert said in str(caught.value)
    assert "interleaved" in caught.value.remedy


def test_a_stored_baseline_of_other_sentences_is_refused() -> None:
    with pytest.raises(UsageError, match=r"sentences of 32\.0 tokens on average instead of 16\.0"):
        check_comparable(measurement(np.ones(100)), measurement(np.ones(100), lengths=(32,)))
