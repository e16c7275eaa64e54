"""Judges artifacts against budgets, and says when it cannot know.

Times are judged by :mod:`benchmarks.percentile_test`, ratios to a baseline by :mod:`benchmarks.comparison`, sizes and
accuracy by what the artifact's manifest holds. The error rates hold for a gate as a whole: it passes only if every
limit passes, so a wrong pass needs no correction (an intersection-union test: Berger, *Technometrics* 24, 1982); one
wrong "over budget" is enough to fail it, so that error is divided by the number of limits that are tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from benchmarks.budget import REGRESSIONS, Budget, bucket_of, share_of
from benchmarks.comparison import FEWEST_PROCESSES, check_comparable, ratio
from benchmarks.looks import ALPHA, SINGLE, Look, Need
from benchmarks.percentile_test import judge_percentile
from benchmarks.statistics import percentile
from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, RecipeError
from compressor.core.limits import MEASURED
from compressor.core.measurement import Measurement
from compressor.core.verdict import Check, Outcome, Verdict


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What regressions are judged against."""

    measurement: Measurement
    interleaved: bool
    """Measured in the same run as the artifacts; otherwise stored, and then device and versions must be the same."""


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """How errors are shared out at one look."""

    alpha: float
    alpha_over: float
    margin: float
    baseline: Baseline | None


def judge(
    budget: Budget,
    artifact: Artifact,
    measurement: Measurement | None,
    *,
    alpha: float = ALPHA,
    look: Look = SINGLE,
    tests: int | None = None,
    baseline: Baseline | None = None,
) -> tuple[Check, ...]:
    """Judges one artifact against one budget.

    Args:
        budget: the limits.
        artifact: what they are for; size and accuracy are its manifest's.
        measurement: its times on the budget's device; None where it was not measured there.
        alpha: the largest probability of either error, for the whole gate.
        look: which of the planned looks this is.
        tests: limits that are tested in the whole gate; None: those of this budget.
        baseline: what regressions are judged against; None: they stay inconclusive.

    Raises:
        ArtifactError: the measurement is of another state of the artifact.
        RecipeError: a length bucket that the artifact does not have.
        UsageError: a stored baseline of another device or other versions.
    """
    if measurement is not None and measurement.subject_hash != artifact.hash:
        raise ArtifactError(
            f"{artifact.name} has the hash {artifact.hash[:12]}, its measurement was made of "
            f"{measurement.subject_hash[:12]}; expected a measurement of this very artifact",
            remedy="measure it again",
        )
    check_buckets(budget, artifact)
    error = alpha * look.share_of_error
    count = count_tests(budget) if tests is None else tests
    rule = _Rule(alpha=error, alpha_over=error / max(count, 1), margin=look.margin, baseline=baseline)
    checks = []
    for name, limit in budget.limits().items():
        check = _find(name, limit, artifact, measurement, rule)
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
    look: Look = SINGLE,
    baseline: Baseline | None = None,
) -> Verdict:
    """Judges every artifact against every budget that is for it.

    Of several measurements of one artifact on one kind of device the last one counts.

    Raises:
        RecipeError: a budget is for none of the artifacts: a misspelt pattern must not read as a pass.
        ArtifactError: a measurement is of another state of its artifact.
        UsageError: a stored baseline of another device or other versions.
    """
    latest = {(item.subject, item.device.partition("@")[0]): item for item in measurements}
    pairs = matches(artifacts, budgets)
    tests = sum(count_tests(budget) for budget, _ in pairs)
    checks: list[Check] = []
    for budget, artifact in pairs:
        measured = latest.get((artifact.name, budget.device))
        checks += judge(budget, artifact, measured, alpha=alpha, look=look, tests=tests, baseline=baseline)
    return Verdict.of(tuple(checks))


def matches(artifacts: Sequence[Artifact], budgets: Sequence[Budget]) -> list[tuple[Budget, Artifact]]:
    """Returns every budget with every artifact it is for.

    Raises:
        RecipeError: a budget is for none of them.
    """
    pairs = []
    for number, budget in enumerate(budgets, 1):
        matching = [artifact for artifact in artifacts if fnmatchcase(artifact.name, budget.artifact)]
        if not matching:
            names = ", ".join(artifact.name for artifact in artifacts) or "none"
            raise RecipeError(
                f"budget {number} is for artifact '{budget.artifact}' on {budget.device} and matches none of: {names}",
                remedy="mend the pattern, or remove the budget",
            )
        pairs += [(budget, artifact) for artifact in matching]
    return pairs


def count_tests(budget: Budget) -> int:
    """Returns how many limits of a budget are tested statistically."""
    return sum(share_of(name) is not None or name in REGRESSIONS for name in budget.limits())


def needs_of(budget: Budget, parts: dict[int, float]) -> set[Need]:
    """Returns the percentiles a budget asks for.

    Args:
        budget: the budget.
        parts: length bucket to its share of the sentences.
    """
    found = set()
    for name in budget.limits():
        share, bucket = share_of(name), bucket_of(name)
        if share is not None:
            found.add(Need(share=share, part=1.0 if bucket is None else parts[bucket[0]]))
    return found


def check_buckets(budget: Budget, artifact: Artifact) -> None:
    """Refuses a limit for a length that the artifact does not run at.

    Raises:
        RecipeError: names the length and those there are.
    """
    lengths = artifact.io.lengths
    for length in budget.by_length:
        if (lengths and length not in lengths) or length > artifact.io.max_tokens:
            known = ", ".join(map(str, lengths)) or f"up to {artifact.io.max_tokens}"
            raise RecipeError(
                f"a budget for {artifact.name} limits length {length}; expected one of its lengths: {known}",
                remedy="name one of these lengths, or convert with --lengths",
            )


def in_bucket(lengths: Sequence[int], bucket: int, artifact: Artifact) -> np.ndarray:
    """Returns which lengths belong to a bucket: those equal to it or, where any length runs, those above half of it."""
    found = np.asarray(lengths)
    return (found == bucket) if artifact.io.lengths else (found <= bucket) & (found > bucket / 2)


def times_of(name: str, artifact: Artifact, measurement: Measurement) -> tuple[list[float], list[int]]:
    """Returns what a limit looks at, with the process of each; nothing where the measurement does not hold it.

    Args:
        name: a budget's key.
        artifact: what was measured; says which lengths a bucket takes in.
        measurement: its runs.
    """
    runs = measurement.runs
    if name == "cold_ms":
        return list(measurement.cold_ms), []
    if name == "peak_memory_mb":
        return [] if measurement.peak_memory_mb is None else [measurement.peak_memory_mb], []
    if name == "total_p95_ms":
        if runs.tokenize_ms is None:
            return [], []
        return [a + b for a, b in zip(runs.tokenize_ms, runs.inference_ms, strict=True)], list(runs.process)
    bucket = bucket_of(name)
    if bucket is None:
        return list(runs.inference_ms), list(runs.process)
    chosen = np.flatnonzero(in_bucket(runs.length, bucket[0], artifact))
    return [runs.inference_ms[index] for index in chosen], [runs.process[index] for index in chosen]


@dataclass(frozen=True)
class _Finding:
    value: float | None
    outcome: Outcome
    detail: str
    runs: int = 0
    over: int | None = None


def _find(name: str, limit: float, artifact: Artifact, measurement: Measurement | None, rule: _Rule) -> _Finding:
    if name in MEASURED or name in REGRESSIONS or share_of(name) is not None:
        return _measured(name, limit, artifact, measurement, rule)
    if name == "delegated":
        return _delegated(artifact, limit)
    if name == "size_mb":
        return _Finding(artifact.size_mb, _at_most(artifact.size_mb, limit), "model files, from the manifest")
    return _floor(artifact, limit) if name == "accuracy_floor" else _accuracy(artifact, limit)


def _measured(name: str, limit: float, artifact: Artifact, measurement: Measurement | None, rule: _Rule) -> _Finding:
    if measurement is None:
        return _Finding(None, "invalid", "not measured on this device")
    if name in REGRESSIONS:
        return _regression(name, limit, measurement, rule)
    share = share_of(name)
    times, process = times_of(name, artifact, measurement)
    value = percentile(times, share) if share is not None and times else max(times, default=None)
    if measurement.invalid_reason is not None:
        return _Finding(value, "invalid", measurement.invalid_reason, runs=len(times))
    if value is None:
        bucket = bucket_of(name)
        missing = f"{measurement.device} does not report it" if bucket is None else f"no run at length {bucket[0]}"
        return _Finding(None, "inconclusive", missing)
    if name == "cold_ms":
        return _cold(times, limit)
    if share is None:
        return _Finding(value, _at_most(value, limit), f"largest of the processes ({measurement.processes})")
    judged = judge_percentile(
        times, process, limit, share, alpha=rule.alpha, alpha_over=rule.alpha_over, margin=rule.margin
    )
    return _Finding(value, judged.outcome, judged.detail, runs=judged.runs, over=judged.over)


def _cold(times: Sequence[float], limit: float) -> _Finding:
    """The slowest process must be within the limit; to be over it, most must be: one slow start proves nothing."""
    over = sum(time > limit for time in times)
    outcome: Outcome = "pass" if not over else "over_budget" if 2 * over > len(times) else "inconclusive"
    return _Finding(max(times), outcome, f"slowest of {len(times)} processes; {over} of them over")


def _regression(name: str, limit: float, measurement: Measurement, rule: _Rule) -> _Finding:
    if measurement.invalid_reason is not None:
        return _Finding(None, "invalid", measurement.invalid_reason, runs=len(measurement.runs))
    if rule.baseline is None:
        return _Finding(None, "inconclusive", "no baseline: name one with --baseline")
    stored = rule.baseline.measurement
    if stored.invalid_reason is not None and rule.baseline.interleaved:
        return _Finding(None, "invalid", f"the baseline: {stored.invalid_reason}", runs=len(measurement.runs))
    if not rule.baseline.interleaved:
        check_comparable(measurement, stored)
    found = ratio(
        measurement, stored, REGRESSIONS[name], paired=rule.baseline.interleaved, alpha=rule.alpha,
        alpha_over=rule.alpha_over,
    )  # fmt: skip
    if found is None:
        reason = f"at least {FEWEST_PROCESSES} processes of each are needed for an interval"
        return _Finding(None, "inconclusive", reason, runs=len(measurement.runs))
    value, low, high = (100 * (factor - 1) for factor in (found.ratio, found.low, found.high))
    outcome: Outcome = "pass" if high <= limit else "over_budget" if low > limit else "inconclusive"
    how = "interleaved" if rule.baseline.interleaved else "stored"
    detail = (
        f"{found.ratio:.3f} times the {how} baseline {stored.subject}, bootstrap interval {found.low:.3f} to "
        f"{found.high:.3f} over {found.processes} processes"
    )
    return _Finding(value, outcome, detail, runs=len(measurement.runs))


def _accuracy(artifact: Artifact, limit: float) -> _Finding:
    reference = artifact.manifest.reference
    against = next((name for name in ("teacher", "checkpoint") if name in reference), None)
    if against is None or "artifact" not in reference:
        return _Finding(None, "inconclusive", _NO_ACCURACY)
    drop = round(100 * (reference[against] - reference["artifact"]), 9)
    return _Finding(drop, _at_most(drop, limit), f"against the {against}{_examples(artifact)}, from the manifest")


def _floor(artifact: Artifact, limit: float) -> _Finding:
    value = artifact.manifest.reference.get("artifact")
    if value is None:
        return _Finding(None, "inconclusive", _NO_ACCURACY)
    outcome: Outcome = "pass" if value >= limit else "over_budget"
    return _Finding(value, outcome, f"the artifact's own metric{_examples(artifact)}, from the manifest")


_NO_ACCURACY = "the manifest holds no accuracy: convert with evaluation data"


def _examples(artifact: Artifact) -> str:
    examples = artifact.manifest.reference.get("examples")
    return "" if examples is None else f" on {examples:.0f} examples"


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
