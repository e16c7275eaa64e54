"""What to try when a time is over its budget, and what each would bring, as far as it was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.budget import bucket_of, share_of
from benchmarks.gate import times_of
from benchmarks.gate_run import Hint
from benchmarks.report.data import ArtifactRow
from benchmarks.statistics import percentile
from compressor.core.artifact import Artifact
from compressor.core.device import DeviceProfile
from compressor.core.measurement import Measurement
from compressor.core.verdict import Check
from export.ladder import step_precision

_MOST_OPERATORS = 4


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known beside the check itself."""

    measurement: Measurement
    profile: DeviceProfile
    operators: Mapping[str, float] = field(default_factory=dict)
    """Operator to its share of the time; empty where it was not profiled."""
    siblings: Mapping[str, tuple[Artifact, Measurement]] = field(default_factory=dict)
    """Other artifacts of the same gate, by name."""
    reported: Sequence[ArtifactRow] = ()
    """Rows of a run's report: other students, measured then."""


def explain(check: Check, artifact: Artifact, evidence: Evidence) -> list[Hint]:
    """Returns hints for one limit on a time that is over budget; none for any other."""
    share = share_of(check.name)
    if check.verdict != "over_budget" or share is None or check.value is None:
        return []
    needed = check.budget / check.value
    lines = [f"{check.value:.3g} ms have to become {check.budget:g} ms: {1 - needed:.0%} less"]
    if evidence.operators:
        top = list(evidence.operators.items())[:_MOST_OPERATORS]
        lines.append("time by operator: " + ", ".join(f"{name} {part:.0%}" for name, part in top))
    if bucket_of(check.name) is None:
        lines += _length_mix(check, artifact, evidence.measurement)
    lines += _next_precision(check, artifact, evidence, share)
    lines += _smaller(check, artifact, evidence)
    return [Hint(artifact=artifact.name, limit=check.name, text=line) for line in lines]


def _length_mix(check: Check, artifact: Artifact, measurement: Measurement) -> list[str]:
    """Says which lengths the slow runs have, and how much of what ran was padding."""
    runs = measurement.runs
    lengths, times = np.array(runs.length), np.array(times_of(check.name, artifact, measurement)[0])
    slow = times > check.budget
    if not slow.any():
        return []
    counts = Counter(lengths[slow].tolist())
    length, count = counts.most_common(1)[0]
    there = lengths == length
    found = [
        f"length mix: {count / slow.sum():.0%} of the runs over {check.budget:g} ms ran at {length} tokens, as did "
        f"{np.mean(there):.0%} of all runs (their median: {percentile(times[there], 0.5):.3g} ms)"
    ]
    padding = 1 - float(np.sum(runs.tokens) / np.sum(lengths))
    if padding > 0.05:
        found.append(f"padding: {padding:.0%} of the tokens that ran; --lengths chosen for these sentences take less")
    return found


def _next_precision(check: Check, artifact: Artifact, evidence: Evidence, share: float) -> list[str]:
    """Names the steps of the device's ladder that make a smaller file, with what a measured one brought."""
    manifest, family = artifact.manifest, artifact.family
    size = {"fp32": 4.0, "fp16": 2.0, "mixed": 1.5, "w8a16": 1.0, "w8a8": 1.0, "int8": 1.0, "int4": 0.5}
    smaller = [
        step
        for step in evidence.profile.ladder
        if size[step.partition("-")[0]] < size[manifest.precision]
        and evidence.profile.refusal(manifest.format, step_precision(step), family=family) is None
    ]
    if not smaller:
        return [f"precision: {manifest.precision} is the smallest that {evidence.profile.name}'s ladder has"]
    step = smaller[0]
    precision = step.partition("-")[0]
    for name, (other, measured) in evidence.siblings.items():
        same = other.manifest.format == manifest.format and other.manifest.precision == precision
        if same and (times := times_of(check.name, other, measured)[0]):
            found = percentile(times, share)
            verdict = "within" if found <= check.budget else "still over"
            return [
                f"precision: {step} is next on the ladder; {name} is it, measured here: {found:.3g} ms "
                f"({verdict} {check.budget:g} ms), {other.size_mb:.3g} MB"
            ]
    return [
        f"precision: {step} is next on the ladder: weights of about {size[precision] / size[manifest.precision]:.0%} "
        "of the bytes; its time was not measured"
    ]


def _smaller(check: Check, artifact: Artifact, evidence: Evidence) -> list[str]:
    """Names the faster artifact or student of the report that loses least."""
    key = {"p50_ms": "p50_ms", "p95_ms": "p95_ms", "total_p95_ms": "total_p95_ms"}.get(check.name)
    if key is None or not evidence.reported:
        return []
    rows = [row for row in evidence.reported if row.name != artifact.name and getattr(row, key) is not None]
    within = [row for row in rows if getattr(row, key) <= check.budget]
    if not within:
        return [f"student: none in the report has {check.name} within {check.budget:g} ms; prune or distill further"]
    best = max(within, key=lambda row: (row.accuracy or 0.0, -row.size_mb))
    score = "" if best.accuracy is None else f", metric {best.accuracy:.4g}"
    return [f"student: {best.name} of the report had {getattr(best, key):.3g} ms{score}, {best.size_mb:.3g} MB"]
