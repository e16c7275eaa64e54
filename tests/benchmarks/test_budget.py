from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.budget import Budget, bucket_of, load_budgets, share_of
from benchmarks.budget_example import budget_example
from benchmarks.gate import check_buckets, count_tests, gate
from benchmarks.statistics import summary
from compressor.core.errors import RecipeError
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement

GOOD = """
version: 1
budgets:
  - device: host
    artifact: "tflite-*"
    p95_ms: 5.0
    size_mb: 20
    accuracy_drop_points: 0
  - {device: snapdragon-865, total_p95_ms: 8}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "budgets.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_reads_the_example_of_the_design(tmp_path: Path) -> None:
    file = load_budgets(write(tmp_path, GOOD))
    assert file.budgets[0].limits() == {"p95_ms": 5.0, "size_mb": 20.0, "accuracy_drop_points": 0.0}
    assert file.budgets[1].artifact == "*"
    assert [budget.device for budget in file.for_device("snapdragon-865")] == ["snapdragon-865"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version: 1\nbudgets: [{device: host, p95_mss: 5}]", "did you mean 'p95_ms'"),
        ("version: 1\nbudget: []", "did you mean 'budgets'"),
        ("version: 1\nbudgets: [{device: hots, p95_ms: 5}]", "did you mean 'host'"),
        (
            "version: 1\nbudgets: [{device: host, p95_ms: 5 ms}]",
            "budgets[0].p95_ms: found '5 ms'; expected a number",
        ),
        ("version: 1\nbudgets: [{device: host, p95_ms: '5'}]", "found '5'; expected a number"),
        ("version: 1\nbudgets: [{device: host, p95_ms: -1}]", "found -1; expected a number above 0"),
        ("version: 1\nbudgets: [{device: host, p95_ms: .nan}]", "found nan; expected a finite number"),
        ("version: 1\nbudgets: [{device: host, p95_ms: true}]", "found True; expected a number"),
        ("version: 1\nbudgets: [{device: host}]", "sets no limit"),
        ("version: 1\nbudgets: []", "budgets"),
        ("version: 1\nbudgets: [{device: host, p95: 5}]", "'p95' has no unit; expected 'p95_ms'"),
        ("version: 1\nbudgets: [{device: host, size: 5}]", "'size' has no unit; expected 'size_mb'"),
        ("version: 1\nbudgets: [{device: host, by_length: {32: {p50: 5}}}]", "'p50' has no unit; expected 'p50_ms'"),
        ("version: 1\nbudgets: [{device: host, accuracy_floor: 90}]", "write 0.9 for 90 %"),
        ("version: 1\nbudgets: [{device: host, delegated: 99}]", "write 0.99 for 99 %"),
        ("version: 1\nbudgets: [{device: host, by_length: {32: {}}}]", "sets no limit for length 32"),
        (
            "version: 1\nbudgets: [{device: host, by_length: {many: {p95_ms: 5}}}]",
            "found 'many'; expected a whole number",
        ),
        ("version: 1\nbudgets: [{device: host, by_length: {32: {cold_ms: 5}}}]", "unknown key"),
        ("version: 2\nbudgets: [{device: host, p95_ms: 5}]", "version"),
        ("version: 1\nbudgets: [{device: host, p95_ms: 5, p95_ms: 9}]", "stands twice"),
        ("version: 1\nbudgets: [", "not valid YAML"),
        ("", "expected the keys version, budgets"),
        ("- 1", "expected the keys version, budgets"),
    ],
)
def test_what_is_wrong_is_named_with_exit_code_2(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_budgets(write(tmp_path, text))
    assert said in str(caught.value)
    assert caught.value.exit_code == 2
    assert "budgets.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"nowhere\.yaml does not exist") as caught:
        load_budgets(tmp_path / "nowhere.yaml")
    assert "compressor gate --init" in caught.value.remedy


def test_a_device_without_budgets_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="host, snapdragon-865"):
        load_budgets(write(tmp_path, GOOD)).for_device("mobile-cpu")


def test_every_key_is_read_and_buckets_become_keys_of_their_own(tmp_path: Path) -> None:
    text = """
version: 1
budgets:
  - device: host
    p50_ms: 1
    p99_ms: 9
    cold_ms: 40
    peak_memory_mb: 100
    accuracy_floor: 0.9
    delegated: 1.0
    p50_regression_percent: 0
    p95_regression_percent: 10
    by_length: {64: {p95_ms: 4}, 16: {p95_ms: 2, p50_ms: 1}}
"""
    (budget,) = load_budgets(write(tmp_path, text)).budgets
    limits = budget.limits()
    assert limits["by_length.16.p95_ms"] == 2.0
    assert list(limits)[-1] == "by_length.64.p95_ms"
    assert share_of("by_length.64.p95_ms") == share_of("total_p95_ms") == 0.95
    assert share_of("size_mb") is None
    assert bucket_of("by_length.16.p50_ms") == (16, "p50_ms")
    assert budget.needs_times
    assert budget.needs_baseline
    assert count_tests(budget) == 7


def test_a_length_that_the_artifact_does_not_have_is_refused(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    with pytest.raises(RecipeError, match="limits length 12; expected one of its lengths: 8, 16, 32"):
        check_buckets(Budget(device="host", by_length={12: {"p95_ms": 1.0}}), artifact)


def test_the_example_is_a_budget_that_the_artifact_passes(tmp_path: Path) -> None:
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    times = np.exp(0.05 * np.random.default_rng(0).normal(size=200))
    measured = measurement(times, subject=artifact.name, subject_hash=artifact.hash)
    text = budget_example(artifact, "host", summary(measured))
    (budget,) = load_budgets(write(tmp_path, text)).budgets
    assert set(budget.limits()) == {"p95_ms", "size_mb", "accuracy_drop_points"}
    assert gate([artifact], [measured], [budget]).verdict == "pass"
    mentioned = set(re.findall(r"^ +(?:[-#] +)?(\w+): ", text, flags=re.MULTILINE))
    assert set(Budget.model_fields) - {"by_length"} <= mentioned
    without = load_budgets(write(tmp_path, budget_example(artifact, "snapdragon-865"))).budgets[0]
    assert set(without.limits()) == {"size_mb", "accuracy_drop_points"}


def test_every_commented_key_of_the_example_can_be_switched_on(tmp_path: Path) -> None:
    text = budget_example(tiny_artifact(tmp_path / "onnx-fp32"), "host")
    switched = re.sub(r"^    # (  \d+: |\w+:)", r"    \1", text, flags=re.MULTILINE)
    (budget,) = load_budgets(write(tmp_path, switched)).budgets
    assert len(budget.limits()) >= 12
