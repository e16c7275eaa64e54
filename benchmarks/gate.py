"""Judges artifacts against budgets, and says when it cannot know.

Times are judged by :mod:`benchmarks.percentile_test`, sizes and accuracy by what the artifact's manifest holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.budget import Budget
from benchmarks.percentile_test import ALPHA, judge_percentile, runs_needed
from benchmarks.statistics import PERCENTILES, percentile
from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, RecipeError
from compressor.core.limits import MEASURED
from compressor.core.measurement import Measurement
from compressor.core.verdict import Check, Outcome, Verdict

SHARES = {**PERCENTILES, "total_p95_ms": 0.95}
"""Budget keys that bound a percentile of single times, and the share of runs that must not exceed it."""


def runs_needed_for(budgets: Sequence[Budget], alpha: float = ALPHA) -> int:
    """Returns the fewest runs with which every percentile in ``budgets`` can pass; 1 where none is set."""
    names = {name for budget in budgets for name in budget.limits()}
    return max((runs_needed(share, alpha) for name, share in SHARES.items() if name in names), default=1)


def judge(
    budget: Budget, artifact: Artifact, measurement: Measurement | None, *, alpha: float = ALPHA
) -> tuple[Check, ...]:
    """Judges one artifact against one budget.

    Args:
        budget: the limits.
        artifact: what they are for; size and accuracy are its manifest's.
        measurement: its times on the budget's device; None where it was not measured there.
        alpha: the largest probability of either error, for each check.

    Raises:
        ArtifactError: the measurement is of another state of the artifact.
    """
    if measurement is not None and measurement.subject_hash != artifact.hash:
        raise ArtifactError(
            f"{artifact.name} has the hash {artifact.hash[:12]}, its measurement was made of "
            f"{measurement.subject_hash[:12]}; expected a measurement of this very artifact",
            remedy="measure it again",
        )
    checks = []
    for name, limit in budget.limits().items():
        if name in MEASURED:
            check = _measured(name, limit, measurement, alpha)
        elif name == "delegated":
            check = _delegated(artifact, limit)
        elif name == "size_mb":
            check = _Finding(artifact.size_mb, _at_most(artifact.size_mb, limit), "model files, from the manifest")
        else:
            check = _accuracy(artifact, limit)
        checks.append(
            Check(
                name=name,
                device=budget.device,
                artifact=artifact.name,
                budget=limit,
                value=check.value,
                verdict=check.outcome,
                runs=check.runs,
                over_budget_runs=check.over,
                detail=check.detail,
            )
        )
    return tuple(checks)


def gate(
    artifacts: Sequence[Artifact],
    measurements: Sequence[Measurement],
    budgets: Sequence[Budget],
    *,
    alpha: float = ALPHA,
) -> Verdict:
    """Judges every artifact against every budget that is for it.

    Of several measurements of one artifact on one kind of device the last one counts.

    Raises:
        RecipeError: a budget is for none of the artifacts: a misspelt pattern must not read as a pass.
        ArtifactError: a measurement is of another state of its artifact.
    """
    latest = {(item.subject, item.device.partition("@")[0]): item for item in measurements}
    checks: list[Check] = []
    for number, budget in enumerate(budgets, 1):
        matching = [artifact for artifact in artifacts if fnmatchcase(artifact.name, budget.artifact)]
        if not matching:
            names = ", ".join(artifact.name for artifact in artifacts) or "none"
            raise RecipeError(
                f"budget {number} is for artifact '{budget.artifact}' on {budget.device} and matches none of: {names}",
                remedy="mend the pattern, or remove the budget",
            )
        for artifact in matching:
            checks += judge(budget, artifact, latest.get((artifact.name, budget.device)), alpha=alpha)
    return Verdict.of(tuple(checks))


@dataclass(frozen=True)
class _Finding:
    value: float | None
    outcome: Outcome
    detail: str
    runs: int = 0
    over: int | None = None


def _measured(name: str, limit: float, measurement: Measurement | None, alpha: float) -> _Finding:
    if measurement is None:
        return _Finding(None, "invalid", "not measured on this device")
    values = _times(name, measurement)
    value = percentile(values, SHARES[name]) if name in SHARES and values else max(values, default=None)
    if measurement.invalid_reason is not None:
        return _Finding(value, "invalid", measurement.invalid_reason, runs=len(values))
    if value is None:
        return _Finding(None, "inconclusive", f"{measurement.device} does not report it")
    if name not in SHARES:
        what = "slowest of the processes" if name == "cold_ms" else "largest of the processes"
        return _Finding(float(value), _at_most(float(value), limit), f"{what} ({measurement.processes})")
    judged = judge_percentile(values, measurement.runs.process, limit, SHARES[name], alpha=alpha)
    return _Finding(float(value), judged.outcome, judged.detail, runs=judged.runs, over=judged.over)


def _times(name: str, measurement: Measurement) -> list[float]:
    if name == "cold_ms":
        return list(measurement.cold_ms)
    if name == "peak_memory_mb":
        return [] if measurement.peak_memory_mb is None else [measurement.peak_memory_mb]
    runs = measurement.runs
    if name == "total_p95_ms":
        return [a + b for a, b in zip(runs.tokenize_ms or (), runs.inference_ms, strict=runs.tokenize_ms is not None)]
    return list(runs.inference_ms)


def _accuracy(artifact: Artifact, limit: float) -> _Finding:
    reference = artifact.manifest.reference
    against = next((name for name in ("teacher", "checkpoint") if name in reference), None)
    if against is None or "artifact" not in reference:
        return _Finding(None, "inconclusive", "the manifest holds no accuracy: convert with evaluation data")
    drop = round(100 * (reference[against] - reference["artifact"]), 9)
    examples = reference.get("examples")
    on = "" if examples is None else f" on {examples:.0f} examples"
    return _Finding(drop, _at_most(drop, limit), f"against the {against}{on}, from the manifest")


def _delegated(artifact: Artifact, limit: float) -> _Finding:
    found = artifact.manifest.placement
    if found is None:
        return _Finding(None, "inconclusive", "the manifest holds no placement: only compiled formats have one")
    left = ", ".join(f"{count} {name}" for name, count in found.cpu_nodes.items())
    detail = f"of {found.nodes} operators in {found.contexts} context(s), from the compiled file"
    return _Finding(
        found.delegated,
        "pass" if found.delegated >= limit else "over_budget",
        f"{detail}; on the CPU: {left}" if left else detail,
    )


def _at_most(value: float, limit: float) -> Outcome:
    return "pass" if value <= limit else "over_budget"
