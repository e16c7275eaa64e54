from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.budget import load_budgets
from compressor.core.errors import RecipeError

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
            "p95_ms: Input should be a valid number (found '5 ms')",
        ),
        ("version: 1\nbudgets: [{device: host, p95_ms: '5'}]", "valid number (found '5')"),
        ("version: 1\nbudgets: [{device: host, p95_ms: -1}]", "greater than 0 (found -1)"),
        ("version: 1\nbudgets: [{device: host, p95_ms: .nan}]", "finite number (found nan)"),
        ("version: 1\nbudgets: [{device: host, p95_ms: true}]", "valid number (found True)"),
        ("version: 1\nbudgets: [{device: host}]", "sets no limit"),
        ("version: 1\nbudgets: []", "budgets"),
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
    with pytest.raises(RecipeError, match=r"nowhere\.yaml"):
        load_budgets(tmp_path / "nowhere.yaml")


def test_a_device_without_budgets_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="host, snapdragon-865"):
        load_budgets(write(tmp_path, GOOD)).for_device("mobile-cpu")
