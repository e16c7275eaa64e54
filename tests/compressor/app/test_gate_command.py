"""``compressor gate`` and ``compressor history`` as a team's CI meets them, the measurement itself replaced."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from compressor.app.cli import app
from compressor.core.artifact import Artifact
from compressor.core.measurement import Measurement
from tests.benchmarks.artifacts import tiny_artifact
from tests.benchmarks.measurements import measurement
from tests.models import SENTENCES


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result, code: int, *words: str) -> None:
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr.replace("\n", " ")


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return tiny_artifact(tmp_path / "artifacts" / "onnx-fp32")


@pytest.fixture
def sentences(tmp_path: Path) -> Path:
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(text for text in SENTENCES if text))
    return file


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """Replaces the measurement by independent times around 2 ms (of ``old``: 1 ms); returns what was asked."""
    asked: list[dict] = []
    random = np.random.default_rng(0)

    def measured(subjects, texts, **options) -> list[Measurement]:
        asked.append({"subjects": [item.name for item in subjects], "sentences": len(texts), **options})
        return [
            measurement(
                (1.0 if "old" in item.name else 2.0) * np.exp(0.1 * random.normal(size=options["runs"])),
                subject=item.name, subject_hash=item.hash, processes=options["processes"], lengths=(8, 8, 8, 16),
            )
            for item in subjects
        ]  # fmt: skip

    monkeypatch.setattr("compressor.app.latency.measure", measured)
    return asked


def budget_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "budgets.yaml"
    file.write_text(f"version: 1\nbudgets:\n  - {{device: host, {text}}}\n")
    return file


def test_the_plan_is_shown_before_and_the_errors_of_all_outputs_agree(
    artifact, sentences, calls, tmp_path: Path
) -> None:
    budget = budget_file(tmp_path, "p95_ms: 1.5, p50_ms: 2.0, size_mb: 1")
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    result = run(
        "gate", artifact.path, "--budget", budget, "--sentences", sentences, "--junit", junit, "--summary", summary,
        "--annotate", "--json", "-o", tmp_path / "measured",
    )  # fmt: skip
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    outcomes = {check["name"]: check["verdict"] for check in document["checks"]}
    assert outcomes == {"p95_ms": "over_budget", "p50_ms": "inconclusive", "size_mb": "pass"}
    assert "runs needed to pass" in result.stderr
    assert document["plan"] in result.stderr
    assert document["looks"] == len(calls) == 4
    assert any("time by operator" in hint["text"] for hint in document["hints"])
    suite = ElementTree.fromstring(junit.read_text()).find("testsuite")
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("1", "1", "0")
    assert "What to try" in summary.read_text()
    assert "::error title=onnx-fp32 on host%3A p95_ms over budget::" in result.stderr
    assert "::warning title=onnx-fp32 on host%3A p50_ms inconclusive::" in result.stderr
    kept = Measurement.load(tmp_path / "measured" / "host-onnx-fp32.json")
    assert len(kept.runs) == sum(call["runs"] for call in calls) == 500


def test_a_baseline_is_interleaved_or_stored_and_compared(artifact, sentences, calls, tmp_path: Path) -> None:
    budget = budget_file(tmp_path, "p50_regression_percent: 10")
    arguments = ["gate", artifact.path, "--budget", budget, "--sentences", sentences]
    refused(run(*arguments), 2, "no baseline to compare with", "--baseline")
    old = tiny_artifact(tmp_path / "before" / "onnx-old")
    interleaved = run(*arguments, "--baseline", old.path, "--json", "-o", tmp_path / "m")
    assert interleaved.exit_code == 1, interleaved.output
    assert json.loads(interleaved.stdout)["checks"][0]["value"] == pytest.approx(100, abs=10)
    assert calls[0]["subjects"] == ["onnx-fp32", "baseline-onnx-old"]
    assert calls[0]["runs"] >= 100
    stored = tmp_path / "m" / "host-onnx-fp32.json"
    assert run(*arguments, "--baseline", stored).exit_code == 0
    other = Measurement.load(stored).model_copy(update={"runtime": "onnxruntime 9.9"})
    other.save(tmp_path / "other.json")
    refused(run(*arguments, "--baseline", tmp_path / "other.json"), 2, "runtime 'onnxruntime 9.9'")
    other.model_copy(update={"device": "mobile-cpu@adb:X"}).save(tmp_path / "phone.json")
    before = len(calls)
    refused(run(*arguments, "--baseline", tmp_path / "phone.json"), 2, "measured on mobile-cpu@adb:X")
    refused(run(*arguments, "--baseline", tmp_path / "nowhere"), 2, "neither an artifact's folder nor")
    assert len(calls) == before, "refused before anything was measured"


def test_runs_that_do_not_suffice_are_refused_with_the_number(artifact, sentences, calls, tmp_path: Path) -> None:
    arguments = ["gate", artifact.path, "--budget", budget_file(tmp_path, "p99_ms: 5"), "--sentences", sentences]
    refused(run(*arguments, "--max-runs", 298), 2, "p99 cannot pass with 298 runs", "--max-runs 299")
    assert calls == []
    assert run(*arguments, "--max-runs", 299).exit_code == 0
    assert sum(call["runs"] for call in calls) == 299


def test_a_length_counts_by_its_share_of_the_sentences(artifact, sentences, calls, tmp_path: Path) -> None:
    file = budget_file(tmp_path, "by_length: {8: {p95_ms: 9.0}}")
    arguments = ["gate", artifact.path, "--budget", file, "--sentences", sentences, "--json"]
    result = run(*arguments)
    assert json.loads(result.stdout)["checks"][0]["name"] == "by_length.8.p95_ms"
    assert result.exit_code == 0
    assert "p95 of a length that is" in result.stderr
    refused(run(*arguments, "--max-runs", 60), 2, "of a length that is", "cannot pass with 60 runs")
    sentences.write_text("where is my order\ncancel my order\n")
    budget_file(tmp_path, "by_length: {32: {p95_ms: 9.0}}")
    refused(run(*arguments), 2, "limits length 32, at which none of the")
    budget_file(tmp_path, "by_length: {24: {p95_ms: 9.0}}")
    refused(run(*arguments), 2, "expected one of its lengths: 8, 16, 32")


def test_a_device_that_is_not_there_has_exit_code_4(artifact, sentences, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "budgets.yaml"
    file.write_text("version: 1\nbudgets:\n  - {device: mobile-cpu, p95_ms: 5}\n")
    result = run(
        "gate", artifact.path, "--budget", file, "--sentences", sentences, "--device", "mobile-cpu@adb:NOT-THERE"
    )
    refused(result, 4, "error:")
    unreached = run("gate", artifact.path, "--budget", file, "--sentences", sentences, "--device", "mobile-cpu")
    refused(unreached, 2, "'mobile-cpu' names a kind of device", "mobile-cpu@adb:SERIAL")


def test_an_artifact_that_changed_since_its_accuracy_was_measured_is_refused(
    artifact, sentences, calls, tmp_path: Path
) -> None:
    file = budget_file(tmp_path, "accuracy_drop_points: 5")
    assert run("gate", artifact.path, "--budget", file, "--sentences", sentences).exit_code == 0
    with (artifact.path / "model.onnx").open("ab") as stream:
        stream.write(b"0")
    refused(run("gate", artifact.path, "--budget", file, "--sentences", sentences), 2, "model.onnx is altered")
    assert calls == []


def test_init_writes_an_example_once(artifact, sentences, calls, tmp_path: Path) -> None:
    file = tmp_path / "made" / "budgets.yaml"
    arguments = ["gate", "--init", artifact.path, "--budget", file, "--sentences", sentences]
    assert str(file) in run(*arguments).stdout
    assert "p95_ms: 2." in file.read_text() or "p95_ms: 3." in file.read_text()
    assert run("gate", artifact.path, "--budget", file, "--sentences", sentences).exit_code == 0
    text = file.read_text()
    refused(run(*arguments), 2, "is there already")
    assert file.read_text() == text


def test_history_is_appended_listed_and_drawn(artifact, sentences, calls, tmp_path: Path) -> None:
    store, file = tmp_path / "history.sqlite", budget_file(tmp_path, "p95_ms: 5")
    for commit in ("aaa", "bbb"):
        arguments = ["--sentences", sentences, "--history", store, "--commit", commit]
        assert run("gate", artifact.path, "--budget", file, *arguments).exit_code == 0
    listed = run("history", store, "-o", tmp_path / "trend")
    assert listed.exit_code == 0, listed.output
    assert "aaa" in listed.stdout
    assert "bbb" in listed.stdout
    (series,) = json.loads(run("history", store, "--json").stdout)
    assert [(item["commit_id"], item["verdict"]) for item in series["entries"]] == [("aaa", "pass"), ("bbb", "pass")]
    assert series["entries"][0]["subject_hash"] == artifact.hash
    assert "p95 over time" in (tmp_path / "trend" / "report.html").read_text()
    refused(run("history", tmp_path / "missing.sqlite"), 2, "does not exist")
    assert json.loads(run("history", store, "--artifact", "other", "--json").stdout) == []


def test_files_that_cannot_be_written_are_told_before_anything_is_measured(
    artifact, sentences, calls, tmp_path: Path
) -> None:
    budget = budget_file(tmp_path, "p95_ms: 5.0")
    arguments = ("gate", artifact.path, "--budget", budget, "--sentences", sentences)
    (tmp_path / "file").write_text("no history")
    for option in ("--history", "--junit", "--summary"):
        refused(run(*arguments, option, tmp_path), 2, f"{tmp_path} cannot be written")
        refused(run(*arguments, option, tmp_path / "file" / "x"), 2, "a file stands where a folder is needed")
    refused(run(*arguments, "--history", tmp_path / "file"), 2, "cannot be used as a history")
    assert calls == []
    assert run(*arguments, "--history", tmp_path / "new" / "history.sqlite").exit_code == 0
