"""What a report says first: how much faster its best artifact is, or why that cannot be said."""

from __future__ import annotations

from typing import Literal, TypeVar

from benchmarks.comparison import FEWEST_PROCESSES
from benchmarks.report.data import ArtifactRow, BaselineRow, ReportData, SpeedUp
from benchmarks.report.text import interval, number, points, smaller
from compressor.core.schema import Record

_PROVEN = ("ok", "pass")
Row = TypeVar("Row", ArtifactRow, BaselineRow)


class Against(Record):
    """An artifact beside one baseline, where it is decided which of them is faster."""

    baseline: str
    runtime: str
    is_fastest: bool
    """Whether no other baseline is faster."""
    direction: Literal["faster", "slower"]
    times: float
    """How many times faster or slower at the median; above 1."""
    low: float
    high: float
    """Bounds of ``times`` at 95 % confidence."""
    smaller: float | None
    """The baseline's size over the artifact's."""
    points: float | None
    """Percentage points of the metric gained (negative: lost)."""


class Headline(Record):
    """The fastest artifact that is within its limits, beside the fastest baseline and then the others."""

    artifact: str
    against: tuple[Against, ...]


def headline(data: ReportData) -> Headline | None:
    """Returns the headline; None where nothing was measured, or :func:`undecided` has the reason."""
    leaders = _leaders(data)
    if leaders is None or isinstance(leaders, str):
        return None
    best, fastest = leaders
    others = [row for row in _timed(data.baselines) if row.name != fastest.name]
    found = [_against(data, best, row, is_fastest=row.name == fastest.name) for row in (fastest, *others)]
    return Headline(artifact=best.name, against=tuple(item for item in found if item is not None))


def undecided(data: ReportData) -> str | None:
    """Returns why no speed-up is shown though artifacts and baselines were timed; None where one is."""
    leaders = _leaders(data)
    return leaders if isinstance(leaders, str) else None


def headline_lines(data: ReportData) -> list[str]:
    """Returns the headline in sentences, one a baseline; or the one that says why there is none."""
    if (reason := undecided(data)) is not None:
        return [f"No speed-up is shown: {reason}."]
    best = headline(data)
    return [] if best is None else [_sentence(best.artifact, item, data.metric_name) for item in best.against]


def _sentence(artifact: str, found: Against, metric_name: str) -> str:
    which = ", the fastest baseline" if found.is_fastest else f" in {found.runtime}"
    size = "" if found.smaller is None else f"; {smaller(found.smaller)}"
    change = "" if found.points is None else f"; {points(found.points)} points of {metric_name}"
    return (
        f"{artifact} is {number(found.times)} times {found.direction} at the median than {found.baseline}{which} "
        f"({interval(found.low, found.high)}){size}{change}."
    )


def _leaders(data: ReportData) -> tuple[ArtifactRow, BaselineRow] | str | None:
    """Returns the fastest of both kinds; the reason where they cannot be compared, None where there are none."""
    if not any(row.p50_ms for row in data.artifacts) or not any(row.p50_ms for row in data.baselines):
        return None
    timed, baselines = _timed(data.artifacts), _timed(data.baselines)
    if not timed or not baselines:
        reasons = {row.invalid_reason for row in (*data.artifacts, *data.baselines) if row.invalid_reason}
        return f"the times are invalid ({'; '.join(sorted(reasons))})"
    proven = [row for row in timed if row.status in _PROVEN]
    if not proven:
        return "no artifact that was measured is proven to be within its limits"
    best, fastest = min(proven, key=_p50), min(baselines, key=_p50)
    return _open_question(data, best, fastest) or (best, fastest)


def _open_question(data: ReportData, best: ArtifactRow, fastest: BaselineRow) -> str | None:
    found = _speed_up(data, best.name, fastest.name)
    pair = f"{best.name} and {fastest.name}, the fastest baseline"
    if found is None:
        return f"to compare {pair}, at least {FEWEST_PROCESSES} processes of each have to be measured"
    if not found.is_decided:
        return (
            f"which of {pair}, is faster is not decided (times the baseline's speed: {interval(found.low, found.high)})"
        )
    return None


def _against(data: ReportData, best: ArtifactRow, baseline: BaselineRow, *, is_fastest: bool) -> Against | None:
    found = _speed_up(data, best.name, baseline.name)
    if found is None or not found.is_decided:
        return None
    gained = None
    if best.accuracy is not None and baseline.accuracy is not None:
        gained = 100 * (best.accuracy - baseline.accuracy)
    faster = found.ratio > 1
    return Against(
        baseline=baseline.name,
        runtime=baseline.runtime,
        is_fastest=is_fastest,
        direction="faster" if faster else "slower",
        times=found.ratio if faster else 1 / found.ratio,
        low=found.low if faster else 1 / found.high,
        high=found.high if faster else 1 / found.low,
        smaller=baseline.size_mb / best.size_mb if baseline.size_mb else None,
        points=gained,
    )


def _speed_up(data: ReportData, artifact: str, baseline: str) -> SpeedUp | None:
    return next((item for item in data.speed_ups if (item.artifact, item.baseline) == (artifact, baseline)), None)


def _timed(rows: tuple[Row, ...]) -> list[Row]:
    return [row for row in rows if row.p50_ms and row.invalid_reason is None]


def _p50(row: ArtifactRow | BaselineRow) -> float:
    return row.p50_ms or 0.0
