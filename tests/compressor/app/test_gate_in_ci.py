"""What CI runs: the commands of the action and of the GitLab snippet, and the pytest plugin, on a real artifact."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from compressor.app import latency
from compressor.app.pytest_plugin import judge
from tests.benchmarks.artifacts import tiny_artifact
from tests.models import SENTENCES

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as CI checks it out: artifacts, sentences, budgets, and a ``compressor`` on the path."""
    folder = tmp_path_factory.mktemp("project")
    tiny_artifact(folder / "artifacts" / "onnx-fp32")
    (folder / "sentences.txt").write_text("\n".join(text for text in SENTENCES if text))
    (folder / "budgets.yaml").write_text("version: 1\nbudgets:\n  - {device: host, p95_ms: 5000, size_mb: 1}\n")
    (folder / "sizes.yaml").write_text("version: 1\nbudgets:\n  - {device: host, size_mb: 1, accuracy_floor: 0.9}\n")
    (folder / "tight.yaml").write_text("version: 1\nbudgets:\n  - {device: host, size_mb: 0.001}\n")
    (folder / "bin").mkdir()
    for name, module in (("compressor", "-m compressor"), ("python", "")):
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
        command.chmod(0o755)
    return folder


def shell(script: str, place: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(place / "bin"), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=place, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def action(place: Path, folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], dict[str, str]]:
    """Runs the action's main step as the runner does: inputs become its environment."""
    folder.mkdir()
    document = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = [item for item in document["runs"]["steps"] if item.get("id") == "gate"]
    values = {name: str(item.get("default", "")) for name, item in document["inputs"].items()} | inputs
    environment = {
        name: values[text.removeprefix("${{ inputs.").removesuffix(" }}")] for name, text in step["env"].items()
    }
    outputs = folder / "output"
    outputs.touch()
    done = shell(
        step["run"], place, GITHUB_STEP_SUMMARY=str(folder / "summary.md"), GITHUB_OUTPUT=str(outputs),
        RUNNER_TEMP=str(folder), **environment,
    )  # fmt: skip
    return done, dict(line.split("=", 1) for line in outputs.read_text().splitlines())


def test_the_action_passes_fails_and_reports(place: Path, tmp_path: Path) -> None:
    good, outputs = action(place, tmp_path / "a", artifact="artifacts", budget="sizes.yaml")
    assert good.returncode == 0, good.stderr
    assert outputs == {"verdict": "pass"}
    assert json.loads(good.stdout)["verdict"] == "pass"
    assert "gate: pass" in (tmp_path / "a" / "summary.md").read_text()
    assert ElementTree.fromstring((place / "gate-junit.xml").read_text()).get("tests") == "2"
    bad, outputs = action(place, tmp_path / "b", artifact="artifacts", budget="tight.yaml")
    assert bad.returncode == 1
    assert outputs == {"verdict": "over_budget"}
    assert "::error title=" in bad.stderr
    wrong, outputs = action(place, tmp_path / "c", artifact="nowhere")
    assert wrong.returncode == 2
    assert outputs == {"verdict": "error"}


def test_the_gitlab_snippet_runs_as_it_stands(place: Path) -> None:
    text = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8").split("<!-- gitlab -->")[1]
    job = yaml.safe_load(text.split("```yaml")[1].split("```")[0])["latency"]
    done = shell("\n".join(job["script"]), place)
    assert done.returncode == 0, done.stderr
    for name in (job["artifacts"]["reports"]["junit"], *job["artifacts"]["paths"], *job["cache"]["paths"]):
        assert (place / name).stat().st_size > 0
    assert job["allow_failure"]["exit_codes"] == [3]


def test_the_plugin_gates_from_pytest(place: Path) -> None:
    (place / "test_latency.py").write_text(
        """
import pytest

ARTIFACT = "artifacts/onnx-fp32"


@pytest.mark.latency_budget(ARTIFACT, size_mb=1)
def test_passes(): ...


@pytest.mark.latency_budget(ARTIFACT, budget="tight.yaml")
def test_fails():
    raise RuntimeError("the body does not run")


@pytest.mark.latency_budget(ARTIFACT, delegated=1.0)
def test_is_an_error(): ...


def test_by_hand(latency_budget):
    verdict = latency_budget(ARTIFACT, p95_ms=5000, sentences="sentences.txt")
    assert verdict.verdict == "pass"


def test_by_hand_fails(latency_budget):
    latency_budget(ARTIFACT, size_mb=0.001)


def test_wrong_use_is_told(latency_budget):
    latency_budget(ARTIFACT)


@pytest.mark.latency_budget("artifacts/none", size_mb=1)
def test_no_artifact(): ...
"""
    )
    done = shell(
        "python -m pytest -p compressor.app.pytest_plugin -p no:cacheprovider --strict-markers -rA "
        "--junit-xml=plugin.xml test_latency.py || true",
        place,
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",  # named on the command line instead, installed or not
    )
    root = ElementTree.parse(place / "plugin.xml").getroot()
    found = {
        case.get("name"): next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        for case in root.iter("testcase")
    }
    assert found == {
        "test_passes": "passed",
        "test_fails": "failure",
        "test_is_an_error": "error",
        "test_by_hand": "passed",
        "test_by_hand_fails": "failure",
        "test_wrong_use_is_told": "failure",
        "test_no_artifact": "error",
    }, done.stdout
    assert "size_mb: 0.01" in done.stdout
    assert "the manifest holds no placement" in done.stdout
    assert "expected either limits or a file" in done.stdout
    assert "what to do: make one with 'compressor convert'" in done.stdout
    assert "errors.UsageError" not in done.stdout, "a message, not a traceback"


def test_the_plugin_is_registered() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"compressor": "compressor.app.pytest_plugin"}


def test_the_plugin_takes_every_option_of_a_gate(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict] = []
    names = set(inspect.signature(latency.gate).parameters) - {"artifact", "announce"}
    monkeypatch.setattr(latency, "gate", lambda artifact, **options: asked.append(options))
    options = dict.fromkeys(names, "budgets.yaml")
    judge(place, "artifacts/onnx-fp32", **options)
    judge(place, "artifacts/onnx-fp32", p95_ms=5.0, cpus="0", prepare=True)
    assert asked[0].keys() == names
    assert asked[0]["summary"] == place / "budgets.yaml"
    assert asked[1].keys() == {"budget", "cpus", "prepare"}
