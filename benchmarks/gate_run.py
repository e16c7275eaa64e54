"""Runs a gate: measures look by look, and stops as soon as every limit is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.budget import Budget, bucket_of
from benchmarks.gate import Baseline, gate, matches
from benchmarks.looks import ALPHA, Look, Need, describe
from benchmarks.merging import merged
from benchmarks.subject import Subject, subject_of
from compressor.core.artifact import Artifact
from compressor.core.measurement import Measurement
from compressor.core.schema import Record
from compressor.core.verdict import Check, Verdict

Take = Callable[[Sequence[Subject], int, int, int], list[Measurement]]
"""Measures subjects interleaved: (subjects, runs, processes, seed) to one measurement each."""
BASELINE = "baseline-"


class Hint(Record):
    """Something to try for a limit that is missed, and what it would bring."""

    artifact: str
    limit: str
    text: str


class GateReport(Verdict):
    """A verdict, how it was reached, and what to try next."""

    plan: str = ""
    """Runs needed, looks and error rates, fixed before the first run."""
    looks: int = 0
    """How many of the looks were taken."""
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GateRun:
    """What a gate found and what it measured."""

    verdict: GateReport
    measurements: tuple[Measurement, ...] = field(default=())


def run_gate(
    artifacts: Sequence[Artifact],
    budgets: Sequence[Budget],
    *,
    timed: Sequence[Artifact],
    looks: Sequence[Look],
    needs: Sequence[Need],
    take: Take,
    baseline: Artifact | Measurement | None = None,
    alpha: float = ALPHA,
) -> GateRun:
    """Measures and judges.

    A limit keeps the verdict of the look that decided it. An artifact whose limits are all decided is measured no
    further; a device that throttled ends the gate as invalid.

    Args:
        artifacts: all that are judged.
        budgets: the limits of one kind of device.
        timed: the artifacts that need times.
        looks: the plan, from :func:`benchmarks.looks.plan_looks`.
        needs: the percentiles the plan is for.
        take: measures.
        baseline: an artifact, measured interleaved with the others, or a stored measurement.
        alpha: the error of the whole gate, each way.

    Raises:
        RecipeError: a budget is for none of the artifacts.
        DeviceError: the device is not reached, or a process failed.
    """
    matches(artifacts, budgets)
    measured: dict[str, Measurement] = {}
    settled: dict[tuple[str, str, int], Check] = {}
    checks: tuple[Check, ...] = ()
    undecided = {artifact.name for artifact in timed}
    taken = 0
    for number, look in enumerate(looks if timed else looks[-1:]):
        subjects = [subject_of(artifact) for artifact in timed if artifact.name in undecided]
        if isinstance(baseline, Artifact) and subjects:
            subjects.append(replace(subject_of(baseline), name=BASELINE + baseline.name))
        if subjects:
            earlier = looks[number - 1] if number else Look(runs=0, processes=0, share_of_error=0.0, margin=0.0)
            for item in take(subjects, look.runs - earlier.runs, look.processes - earlier.processes, number):
                measured[item.subject] = merged(measured.get(item.subject), item)
        taken += bool(subjects)
        found = gate(
            artifacts, list(measured.values()), budgets, alpha=alpha, look=look, baseline=_compared(baseline, measured)
        ).checks
        # Two budgets may set the same key for the same artifact: the place in the gate is part of a limit's identity.
        keys = [(check.artifact, check.name, place) for place, check in enumerate(found)]
        settled |= {
            key: check
            for key, check in zip(keys, found, strict=True)
            if key not in settled and check.verdict != "inconclusive"
        }
        checks = tuple(settled.get(key, check) for key, check in zip(keys, found, strict=True))
        undecided = {check.artifact for check in checks if check.verdict == "inconclusive" and _may_change(check)}
        if any(item.invalid_reason for item in measured.values()) or not undecided & {item.name for item in timed}:
            break
    verdict = Verdict.of(checks)
    report = GateReport(
        verdict=verdict.verdict, checks=checks, plan=describe(looks, needs, alpha) if timed else "", looks=taken
    )
    return GateRun(verdict=report, measurements=tuple(measured.values()))


def _compared(baseline: Artifact | Measurement | None, measured: dict[str, Measurement]) -> Baseline | None:
    if isinstance(baseline, Measurement):
        return Baseline(measurement=baseline, interleaved=False)
    found = None if baseline is None else measured.get(BASELINE + baseline.name)
    return None if found is None else Baseline(measurement=found, interleaved=True)


def _may_change(check: Check) -> bool:
    """Returns whether more runs can decide a limit: what nothing measures stays unknown."""
    return check.runs > 0 or check.name == "cold_ms" or bucket_of(check.name) is not None
