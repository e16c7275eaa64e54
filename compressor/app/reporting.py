"""Gathers what a run found into the plain values of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.comparison import ratio
from benchmarks.looks import ALPHA
from benchmarks.report.data import ArtifactRow, BaselineRow, ReportData, SpeedUp, StageRow
from benchmarks.statistics import LatencySummary, summary
from compressor.app.inspection import inspect
from compressor.core.artifact import Artifact
from compressor.core.environment import machine, versions
from compressor.core.measurement import Measurement
from compressor.core.verdict import Outcome, Verdict
from compressor.pipeline import RunResult, StageRecord
from compressor.tasks import HEADS
from devices.profiles import HOST
from export.bundle import read_parity

_CURVES = "curves"


def report_data(result: RunResult, verdict: Verdict | None, *, created: str) -> ReportData:
    """Returns everything the report of a run says.

    Args:
        result: the finished pipeline.
        verdict: what the limits say of it; None where there are none.
        created: when, in ISO 8601.
    """
    context = result.context
    on_host = {item.subject: item for item in context.measurements if item.device.startswith(f"{HOST}@")}
    times = {name: summary(item) for name, item in on_host.items()}
    first = next(iter(on_host.values()), None)
    baselines = {name: facts for name, facts in _baselines(result).items() if name in times}
    return ReportData(
        title=result.recipe.name,
        metric_name=HEADS[context.data.task].measures,
        created=created,
        recipe=result.recipe.name,
        device=first.device if first else f"{HOST}@local",
        threads=first.threads if first else 1,
        runs=len(first.runs) if first else 0,
        stages=tuple(_stage(result, record) for record in result.records),
        baselines=tuple(
            BaselineRow(
                name=name,
                runtime=on_host[name].runtime,
                size_mb=facts.get("size_mb"),
                accuracy=facts.get("accuracy"),
                **_times(times[name]),
            )
            for name, facts in baselines.items()
        ),
        artifacts=tuple(_artifact(item, times.get(item.name), verdict) for item in context.artifacts),
        speed_ups=_speed_ups(
            [on_host[item.name] for item in context.artifacts if item.name in on_host],
            [on_host[name] for name in baselines],
        ),
        verdict=verdict.verdict if verdict else None,
        checks=verdict.checks if verdict else (),
        machine=machine(),
        versions=versions(),
        notes=(*_conditions(list(times.values())), *_notes(result)),
    )


def _stage(result: RunResult, record: StageRecord) -> StageRow:
    """Takes the parameters from the checkpoint's own file, and the metric from what the stage evaluated."""
    checkpoint = result.context.checkpoints.get(record.id)
    found = inspect(checkpoint.path) if checkpoint else None
    facts = {name: value for name, value in record.facts.items() if name != _CURVES}
    return StageRow(
        id=record.id,
        stage=record.name,
        status=record.status,
        seconds=record.seconds,
        parameters=found.parameters if found else None,
        size_mb=found.size_bytes / 1e6 if found else None,
        metric=_metric(record.facts),
        note=_note(record),
        curves=record.facts.get(_CURVES, {}),
        facts=facts,
    )


def _metric(facts: dict[str, Any]) -> float | None:
    """Returns the test metric of the model that the stage made (of a distillation, the student's)."""
    evaluation = facts.get("evaluation", {})
    value = evaluation.get("student", evaluation).get("test", {}).get("value")
    return None if value is None else float(value)


def _note(record: StageRecord) -> str:
    if record.name == "export":
        return f"{len(record.outputs)} artifacts"
    if record.name == "benchmark":
        return f"{len(record.outputs)} measurements"
    return str(record.facts.get("note", ""))


def _artifact(artifact: Artifact, times: LatencySummary | None, verdict: Verdict | None) -> ArtifactRow:
    manifest, parity, reference = artifact.manifest, read_parity(artifact), artifact.manifest.reference
    accuracy = reference.get("artifact")
    against = reference.get("teacher", reference.get("checkpoint"))
    return ArtifactRow(
        name=artifact.name,
        format=manifest.format,
        precision=manifest.precision,
        compute_precision=manifest.compute_precision,
        size_mb=artifact.size_mb,
        accuracy=accuracy,
        drop_points=None if accuracy is None or against is None else 100 * (against - accuracy),
        parity_max_error=parity.max_error,
        label_agreement=parity.label_agreement,
        status=_status(artifact.name, verdict),
        note=""
        if times
        else "simulated; not run on hardware"
        if manifest.simulated
        else "not run on hardware"
        if manifest.format == "tensorrt"
        else "not measured",
        **_times(times),
    )


def _status(name: str, verdict: Verdict | None) -> Outcome | str:
    """Returns the worst verdict among the artifact's checks; ``ok`` where nothing was to be judged."""
    checks = tuple(check for check in verdict.checks if check.artifact == name) if verdict else ()
    return Verdict.of(checks).verdict if checks else "ok"


def _baselines(result: RunResult) -> dict[str, dict[str, float]]:
    return {name: facts for record in result.records for name, facts in record.facts.get("baselines", {}).items()}


def _times(times: LatencySummary | None) -> dict[str, Any]:
    if times is None:
        return {}
    return {
        "p50_ms": times.p50_ms,
        "p95_ms": times.p95_ms,
        "total_p95_ms": times.total_p95_ms,
        "by_length": {length: row.p50_ms for length, row in times.by_length.items()},
        "invalid_reason": times.invalid_reason,
    }


def _speed_ups(artifacts: Sequence[Measurement], baselines: Sequence[Measurement]) -> tuple[SpeedUp, ...]:
    """Compares the medians of all pairs that were measured validly in enough processes, each interval at 95 %."""
    found = []
    for ours in artifacts:
        for theirs in baselines:
            if ours.invalid_reason is not None or theirs.invalid_reason is not None:
                continue
            in_one_run = ours.conditions_before == theirs.conditions_before
            times = ratio(theirs, ours, 0.5, paired=in_one_run, alpha=ALPHA / 2)
            if times is not None:
                found.append(
                    SpeedUp(
                        artifact=ours.subject, baseline=theirs.subject,
                        ratio=times.ratio, low=times.low, high=times.high,
                    )
                )  # fmt: skip
    return tuple(found)


def _conditions(times: Sequence[LatencySummary]) -> tuple[str, ...]:
    """Says in what state the machine was while it measured; all subjects of one run share most of it."""
    invalid = dict.fromkeys(item.invalid_reason for item in times if item.invalid_reason is not None)
    notes = dict.fromkeys(note for item in times for note in item.notes)
    return (
        *(f"Times are invalid and no figure of the models: {reason}." for reason in invalid),
        *(f"While the times were measured: {note}." for note in notes),
    )


def _notes(result: RunResult) -> tuple[str, ...]:
    """Says what was left out of the measurement and why, and which files were refused for a safer precision."""
    lines = []
    for record in result.records:
        lines += [f"{name}: {reason}" for name, reason in record.facts.get("skipped", {}).items()]
        lines += [f"{refused['rung']} refused: {refused['reason']}" for refused in record.facts.get("refused", ())]
    return tuple(lines)
