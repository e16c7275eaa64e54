from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.budget import Budget
from benchmarks.gate import gate
from benchmarks.junit import junit_xml
from benchmarks.summary import markdown_summary
from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, RecipeError
from compressor.core.measurement import Measurement
from compressor.core.verdict import Check, Verdict
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("gate") / "onnx-fp32")


def measured(artifact: Artifact, **changes) -> Measurement:
    times = np.exp(0.1 * np.random.default_rng(0).normal(size=200))
    return measurement(times, subject=artifact.name, subject_hash=artifact.hash, **changes)


def one(artifact: Artifact, limit: dict, **changes) -> tuple[Verdict, Check]:
    verdict = gate([artifact], [measured(artifact, **changes)], [Budget(device="host", **limit)])
    assert len(verdict.checks) == 1
    return verdict, verdict.checks[0]


@pytest.mark.parametrize(
    ("limit", "outcome", "code"),
    [
        ({"p95_ms": 2.0}, "pass", 0),
        ({"p95_ms": 0.9}, "over_budget", 1),
        ({"p95_ms": 1.18}, "inconclusive", 3),
        ({"p50_ms": 1.2}, "pass", 0),
        ({"p99_ms": 9.0}, "inconclusive", 3),
        ({"total_p95_ms": 2.0}, "pass", 0),
        ({"total_p95_ms": 1.0}, "over_budget", 1),
        ({"cold_ms": 12.0}, "pass", 0),
        ({"cold_ms": 11.9}, "inconclusive", 3),
        ({"cold_ms": 8.9}, "over_budget", 1),
        ({"peak_memory_mb": 100.0}, "pass", 0),
        ({"peak_memory_mb": 79.0}, "over_budget", 1),
        ({"size_mb": 1.0}, "pass", 0),
        ({"size_mb": 0.001}, "over_budget", 1),
        ({"accuracy_drop_points": 1.0}, "pass", 0),
        ({"accuracy_drop_points": 0.99}, "over_budget", 1),
        ({"accuracy_floor": 0.94}, "pass", 0),
        ({"accuracy_floor": 0.95}, "over_budget", 1),
        ({"by_length": {16: {"p95_ms": 2.0}}}, "pass", 0),
        ({"by_length": {16: {"p50_ms": 0.8}}}, "over_budget", 1),
        ({"by_length": {32: {"p50_ms": 9.0}}}, "inconclusive", 3),
        ({"p95_regression_percent": 5.0}, "inconclusive", 3),
    ],
)
def test_outcomes_and_exit_codes(artifact: Artifact, limit: dict, outcome: str, code: int) -> None:
    verdict, check = one(artifact, limit)
    assert (check.verdict, verdict.exit_code) == (outcome, code)


def test_a_percentile_that_needs_more_runs_says_how_many(artifact: Artifact) -> None:
    _, check = one(artifact, {"p99_ms": 9.0})
    assert "at least 299" in check.detail
    assert check.runs == 200
    assert check.over_budget_runs == 0


def test_invalid_conditions_make_times_invalid_and_nothing_else(artifact: Artifact) -> None:
    budget = Budget(device="host", p95_ms=2.0, cold_ms=20.0, size_mb=1.0)
    verdict = gate([artifact], [measured(artifact, invalid_reason="throttled")], [budget])
    assert {check.name: check.verdict for check in verdict.checks} == {
        "p95_ms": "invalid",
        "cold_ms": "invalid",
        "size_mb": "pass",
    }
    assert verdict.exit_code == 4


def test_a_device_without_measurement_is_invalid_not_passed(artifact: Artifact) -> None:
    verdict = gate([artifact], [measured(artifact)], [Budget(device="snapdragon-865", p95_ms=2.0)])
    assert verdict.exit_code == 4
    assert verdict.checks[0].detail == "not measured on this device"


def test_unknown_memory_and_unknown_accuracy_are_inconclusive(artifact: Artifact, tmp_path: Path) -> None:
    assert one(artifact, {"peak_memory_mb": 9.0}, peak_memory_mb=None)[0].exit_code == 3
    unjudged = tiny_artifact(tmp_path / "onnx-fp32", reference={})
    assert one(unjudged, {"accuracy_drop_points": 1.0})[0].exit_code == 3


def test_accuracy_falls_back_to_the_checkpoint(tmp_path: Path) -> None:
    alone = tiny_artifact(tmp_path / "onnx-fp32", reference={"checkpoint": 0.9, "artifact": 0.895})
    _, check = one(alone, {"accuracy_drop_points": 1.0})
    assert check.value == 0.5
    assert "checkpoint" in check.detail


def test_a_measurement_of_another_state_is_refused(artifact: Artifact) -> None:
    other = measurement([1.0] * 200, subject=artifact.name, subject_hash="0" * 64)
    with pytest.raises(ArtifactError, match="measure it again"):
        gate([artifact], [other], [Budget(device="host", p95_ms=2.0)])


def test_a_budget_for_no_artifact_is_an_error(artifact: Artifact) -> None:
    with pytest.raises(RecipeError, match="matches none of: onnx-fp32"):
        gate([artifact], [], [Budget(device="host", artifact="tflite-*", size_mb=1.0)])


def test_no_checks_prove_nothing() -> None:
    assert gate([], [], []).exit_code == 4


@pytest.fixture
def mixed() -> Verdict:
    common = {"device": "host", "budget": 2.0, "detail": "a < b & \x07 | c"}
    return Verdict.of(
        (
            Check(
                name="p95_ms", artifact="one|<two>", value=1.0, verdict="pass", runs=200, over_budget_runs=3, **common
            ),
            Check(name="p99_ms", artifact="one", value=3.0, verdict="over_budget", **common),
            Check(name="p50_ms", artifact="one", value=2.0, verdict="inconclusive", **common),
            Check(name="cold_ms", artifact="one", value=None, verdict="invalid", **common),
        )
    )


def test_junit_reports_over_budget_as_failure_and_undecided_as_error(mixed: Verdict) -> None:
    root = ElementTree.fromstring(junit_xml(mixed))
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("4", "1", "2")
    cases = root.findall("./testsuite/testcase")
    assert [case.get("name") for case in cases] == ["p95_ms", "p99_ms", "p50_ms", "cold_ms"]
    assert cases[0].get("classname") == "host.one|<two>"
    assert cases[0].find("failure") is None
    assert cases[0].find("error") is None
    assert "budget 2" in cases[1].find("failure").get("message")
    assert cases[2].find("error").get("type") == "inconclusive"
    assert cases[3].find("error").get("type") == "invalid"
    assert root.find(".//skipped") is None


def test_markdown_has_one_row_a_check_with_equal_columns(mixed: Verdict) -> None:
    lines = markdown_summary(mixed).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert lines[0].endswith("**over budget**"), "a limit that is broken outweighs checks that could not be made"
    assert len(rows) == 2 + 4
    assert {row.replace("\\|", "").count("|") for row in rows} == {9}
    assert "3 / 200" in rows[2]
    assert "**over budget**" in rows[3]
