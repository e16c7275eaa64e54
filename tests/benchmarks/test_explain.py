from __future__ import annotations

import numpy as np

from benchmarks.annotations import github_annotations
from benchmarks.budget import Budget, LengthLimits
from benchmarks.explain import Evidence, explain
from benchmarks.gate import judge
from benchmarks.gate_run import GateReport, Hint
from benchmarks.operator_time import operator_shares
from benchmarks.report.data import ArtifactRow
from benchmarks.summary import markdown_summary
from compressor.core.verdict import Check, Verdict
from devices.profiles import load_profile
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement


def test_what_is_over_budget_is_explained_by_what_was_measured(tmp_path) -> None:
    artifact, smaller = tiny_artifact(tmp_path / "onnx-fp32"), tiny_artifact(tmp_path / "onnx-int8")
    int8 = smaller.manifest.model_copy(update={"precision": "int8"})
    smaller = type(smaller)(smaller.path, int8, smaller.io)
    random = np.random.default_rng(0)
    times = np.where(np.arange(200) % 4 == 0, 3.0, 1.0) * np.exp(0.05 * random.normal(size=200))
    ours = measurement(times, subject=artifact.name, subject_hash=artifact.hash, lengths=(32, 8, 8, 8))
    (check,) = judge(Budget(device="host", p95_ms=2.0), artifact, ours)
    row = ArtifactRow(
        name="onnx-3-layers", format="onnx", precision="fp32", compute_precision="fp32", size_mb=9.0, accuracy=0.93,
        p95_ms=1.2,
    )  # fmt: skip
    evidence = Evidence(
        measurement=ours,
        profile=load_profile("host"),
        operators=operator_shares(artifact, 16),
        siblings={smaller.name: (smaller, measurement(0.4 * times, subject="onnx-int8"))},
        reported=[row, row.model_copy(update={"name": "slow", "p95_ms": 2.5, "accuracy": 0.99})],
    )
    said = "\n".join(hint.text for hint in explain(check, artifact, evidence))
    assert "MatMul" in said
    assert "100% of the runs over 2 ms ran at 32 tokens, as did 25% of all runs" in said
    assert "int8-dynamic is next on the ladder; onnx-int8 is it, measured here" in said
    assert "within 2 ms" in said
    assert "onnx-3-layers of the report had 1.2 ms, metric 0.93" in said


def test_a_hint_speaks_of_the_times_that_the_limit_is_on(tmp_path) -> None:
    artifact, smaller = tiny_artifact(tmp_path / "onnx-fp32"), tiny_artifact(tmp_path / "onnx-int8")
    smaller = type(smaller)(smaller.path, smaller.manifest.model_copy(update={"precision": "int8"}), smaller.io)
    times = np.where(np.arange(400) % 4 == 0, 9.0, 1.0)

    def said(budget: Budget, faster: float) -> str:
        ours, theirs = (
            measurement(factor * times, subject=item.name, subject_hash=item.hash, lengths=(32, 8, 8, 8), tokenize_ms=1)
            for factor, item in ((1.0, artifact), (faster, smaller))
        )
        (check,) = judge(budget, artifact, ours)
        siblings = {smaller.name: (smaller, theirs)}
        evidence = Evidence(measurement=ours, profile=load_profile("host"), siblings=siblings)
        return "\n".join(hint.text for hint in explain(check, artifact, evidence))

    short = said(Budget(device="host", by_length={8: LengthLimits(p95_ms=0.5)}), 0.4)
    assert "measured here: 0.4 ms (within 0.5 ms)" in short
    assert "32 tokens" not in short
    both = said(Budget(device="host", total_p95_ms=1.5), 0.1)
    assert "measured here: 1.9 ms (still over 1.5 ms)" in both
    assert "75% of the runs over 1.5 ms ran at 8 tokens" in both


def test_without_evidence_nothing_is_claimed(tmp_path) -> None:
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    ours = measurement(np.full(200, 3.0), subject=artifact.name, subject_hash=artifact.hash)
    (check,) = judge(Budget(device="host", p95_ms=2.0), artifact, ours)
    evidence = Evidence(measurement=ours, profile=load_profile("host"))
    said = "\n".join(hint.text for hint in explain(check, artifact, evidence))
    assert "its time was not measured" in said
    assert "student" not in said
    assert "operator" not in said
    (passed,) = judge(Budget(device="host", p95_ms=9.0), artifact, ours)
    assert explain(passed, artifact, evidence) == []


def test_shares_of_operators_are_shares(tmp_path) -> None:
    shares = operator_shares(tiny_artifact(tmp_path / "onnx-fp32", depth=3), 16)
    assert abs(sum(shares.values()) - 1) < 1e-9
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert "MatMul" in shares


def test_the_summary_of_a_gate_says_plan_and_hints() -> None:
    check = Check(name="p95_ms", device="host", artifact="a", budget=1.0, value=2.0, verdict="over_budget", runs=100)
    report = GateReport(
        verdict="over_budget", checks=(check,), plan="runs needed: 77", looks=1,
        hints=(Hint(artifact="a", limit="p95_ms", text="try int8"),),
    )  # fmt: skip
    text = markdown_summary(report)
    assert "Runs needed: 77; looks taken: 1." in text
    assert "- a, `p95_ms`: try int8" in text


def test_annotations_are_one_line_a_limit_and_escaped() -> None:
    common = {"device": "host", "budget": 2.0, "value": 3.0}
    verdict = Verdict.of(
        (
            Check(name="p95_ms", artifact="one, two: 100%", verdict="over_budget", detail="50%\nmore", **common),
            Check(name="p50_ms", artifact="b", verdict="inconclusive", **common),
            Check(name="size_mb", artifact="b", verdict="pass", **common),
        )
    )
    lines = github_annotations(verdict).splitlines()
    assert lines[0] == (
        "::error title=one%2C two%3A 100%25 on host%3A p95_ms over budget::found 3, budget 2: 50%25%0Amore"
    )
    assert lines[1].startswith("::warning title=b on host%3A p50_ms inconclusive::")
    assert len(lines) == 2
