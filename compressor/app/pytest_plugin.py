"""A pytest plugin: latency budgets as tests, for teams who gate from there.

    @pytest.mark.latency_budget("artifacts/onnx-int8", p95_ms=5.0, size_mb=20)
    def test_fast_enough(): ...

    def test_by_hand(latency_budget):
        latency_budget("artifacts/onnx-int8", budget="budgets.yaml")

Over budget is a failure; inconclusive or invalid is an error of the marked test, never a skip. Paths are relative to
pytest's root folder. Keys are those of a budget (``p95_ms``, ``by_length``, …) and of :func:`compressor.gate`
(``device``, ``sentences``, ``threads``, ``cpus``, ``max_runs``, ``baseline``, ``history``, ``budget``, …).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # pytest loads this file in every project of an environment: what it needs is loaded when it is used
    from benchmarks.gate_run import GateReport

MARK = "latency_budget"
_PATHS = ("budget", "sentences", "baseline", "history", "junit", "summary", "output")
_OPTIONS = (*_PATHS, "device", "threads", "max_runs", "commit", "prepare", "cpus")
_OVER = pytest.StashKey[str]()


class UndecidedError(Exception):
    """A gate that could not decide, or a device that was in no condition to be measured."""


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers", f"{MARK}(artifact, **limits): measure an artifact and fail where it is over its budget"
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Judges what the marker of a test names; what is not decided is an error in the test's setup."""
    over = []
    for mark in item.iter_markers(MARK):
        verdict = _judged(item.config.rootpath, *mark.args, **mark.kwargs)
        if verdict.verdict == "over_budget":
            over.append(describe(verdict))
        elif verdict.verdict != "pass":
            raise UndecidedError(describe(verdict))
    if over:
        item.stash[_OVER] = "\n".join(over)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fails a marked test whose artifact is over budget, before its body runs."""
    if _OVER in item.stash:
        pytest.fail(item.stash[_OVER], pytrace=False)


@pytest.fixture
def latency_budget(request: pytest.FixtureRequest) -> Callable[..., GateReport]:
    """Returns a function that judges an artifact; it fails the test, or raises where nothing could be decided."""

    def check(artifact: str | Path, **options: Any) -> GateReport:
        verdict = _judged(request.config.rootpath, artifact, **options)
        if verdict.verdict == "over_budget":
            pytest.fail(describe(verdict), pytrace=False)
        if verdict.verdict != "pass":
            raise UndecidedError(describe(verdict))
        return verdict

    return check


def _judged(root: Path, artifact: str | Path, **options: Any) -> GateReport:
    """Judges as :func:`judge`; a user's error ends the test with its message alone."""
    from compressor.core.errors import CompressorError

    try:
        return judge(root, artifact, **options)
    except CompressorError as error:
        message = f"latency budget: {error.message}\n  what to do: {error.remedy}"
    pytest.fail(message, pytrace=False)


def judge(root: Path, artifact: str | Path, **options: Any) -> GateReport:
    """Gates one artifact.

    Args:
        root: what relative paths start from.
        artifact: the artifact's folder.
        options: limits, or ``budget`` with a file of them, and options of :func:`compressor.gate`.

    Raises:
        CompressorError: wrong limits or options, an artifact that is no artifact, a device that is not reached.
    """
    from compressor.app import latency
    from compressor.core.errors import UsageError

    chosen = {name: options.pop(name) for name in _OPTIONS if name in options}
    for name in _PATHS:
        if chosen.get(name) is not None:
            chosen[name] = root / chosen[name]
    if bool(options) == ("budget" in chosen):
        raise UsageError(
            f"latency_budget has the limits {sorted(options) or 'none'} and the budget file "
            f"{chosen.get('budget', 'none')}; expected either limits or a file",
            remedy="pass e.g. p95_ms=5.0, or budget='budgets.yaml'",
        )
    if "budget" in chosen:
        return latency.gate(root / artifact, **chosen)
    profile = str(chosen.get("device", "host")).partition("@")[0]
    with tempfile.TemporaryDirectory(prefix="compressor-budget-") as folder:
        file = Path(folder) / "latency_budget.yaml"  # JSON is YAML
        file.write_text(json.dumps({"version": 1, "budgets": [{"device": profile, **options}]}), encoding="utf-8")
        return latency.gate(root / artifact, budget=file, **chosen)


def describe(verdict: GateReport) -> str:
    """Returns what did not pass, and what to try."""
    lines = [f"latency budget: {verdict.verdict.replace('_', ' ')}"]
    for check in verdict.checks:
        if check.verdict != "pass":
            found = "not known" if check.value is None else f"{check.value:.4g}"
            lines.append(f"  {check.artifact} {check.name}: {found}, budget {check.budget:g}: {check.detail}")
    return "\n".join([*lines, *(f"  {hint.text}" for hint in verdict.hints)])
