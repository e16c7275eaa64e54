"""What a report holds: plain values, gathered by whoever ran the road."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from benchmarks.trend import Series
from compressor.core.artifact import Format, Precision
from compressor.core.schema import Record
from compressor.core.verdict import Check, Outcome
from compressor.core.wording import reading, threads

_HOST = "host@"


class StageRow(Record):
    """One stage of the recipe. Figures are those of the checkpoint after it; None where it makes none."""

    id: str
    stage: str
    status: Literal["ran", "cached"]
    seconds: float
    parameters: int | None = None
    size_mb: float | None = None
    metric: float | None = None
    """A fraction."""
    note: str = ""
    curves: dict[str, tuple[float | None, ...]] = Field(default_factory=dict)
    """Loss by step, one curve a loss; None at a step at which it did not count."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """Whatever else the stage reported."""


class LatencyRow(Record):
    """The times of one subject in milliseconds per sentence; None where it was not measured."""

    name: str
    p50_ms: float | None = None
    p95_ms: float | None = None
    total_p95_ms: float | None = None
    """Tokenisation included."""
    by_length: dict[int, float] = Field(default_factory=dict)
    """Length to p50."""
    invalid_reason: str | None = None
    """Why the times are not the model's own; None where they are."""


class BaselineRow(LatencyRow):
    """What the artifacts are compared with, e.g. the teacher in PyTorch padded to 128 tokens."""

    runtime: str
    size_mb: float | None = None
    accuracy: float | None = None


class ArtifactRow(LatencyRow):
    """One artifact."""

    format: Format
    precision: Precision
    """As found in the file."""
    compute_precision: str
    size_mb: float
    accuracy: float | None = None
    drop_points: float | None = None
    parity_max_error: float | None = None
    """Largest difference of a logit from PyTorch's, relative to the spread of the logits."""
    label_agreement: float | None = None
    """Fraction of sentences with PyTorch's label."""
    status: str = "ok"
    note: str = ""


class SpeedUp(Record):
    """A baseline's median time over an artifact's."""

    artifact: str
    baseline: str
    ratio: float
    low: float
    high: float
    """Bounds at 95 % confidence."""

    @property
    def is_decided(self) -> bool:
        """Whether one of them is surely the faster."""
        return self.low > 1 or self.high < 1


class ReportData(Record):
    """Everything a report says."""

    schema_version: Literal[1] = 1
    title: str
    created: str
    """When, in ISO 8601."""
    recipe: str = ""
    metric_name: str = "accuracy"
    device: str = "host@local"
    threads: int = 1
    runs: int = 0
    """Timed runs of each subject."""
    stages: tuple[StageRow, ...] = ()
    baselines: tuple[BaselineRow, ...] = ()
    artifacts: tuple[ArtifactRow, ...] = ()
    speed_ups: tuple[SpeedUp, ...] = ()
    """Of every artifact against every baseline, where enough processes were measured for an interval."""
    verdict: Outcome | None = None
    checks: tuple[Check, ...] = ()
    trends: tuple[Series, ...] = ()
    """What was measured before, one series an artifact and machine."""
    machine: dict[str, str] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    not_run: tuple[str, ...] = ("phones", "Jetsons")
    """Kinds of device that artifacts were made for and nothing was run on."""
    notes: tuple[str, ...] = ()


def history_report(trends: tuple[Series, ...], *, created: str) -> ReportData:
    """Returns a report of past measurements alone.

    Args:
        trends: the series.
        created: when, in ISO 8601.
    """
    return ReportData(
        title="History of times",
        created=created,
        device=", ".join(sorted({series.device for series in trends})) or "no device",
        threads=trends[0].threads if trends else 1,
        trends=trends,
        not_run=(),
    )


def facts(data: ReportData) -> tuple[dict[str, str], ...]:
    """Returns {name: value} of the machine and of the versions, for people; of both, what is known."""
    machine = dict(reading(name, value) for name, value in data.machine.items())
    return tuple(filter(None, (machine, data.versions)))


def caveats(data: ReportData) -> tuple[str, ...]:
    """Returns what has to be said beside the numbers, whoever reads them."""
    if data.device.startswith(_HOST) and "," not in data.device:
        where = "They hold for this machine only and are no estimate of a phone's or a Jetson's."
    else:
        where = "They hold for what they were measured on and for no other device."
    measured = f"Times were measured on {data.device} with {threads(data.threads)}, per sentence at its own length"
    padded = (
        ""
        if not any("padded" in row.name for row in data.baselines)
        else " (a padded baseline at the length in its name)"
    )
    lines = [f"{measured}{padded}. {where}"]
    if data.not_run:
        lines.append(f"Not run on hardware: {', '.join(data.not_run)}.")
    return (*lines, *data.notes)
