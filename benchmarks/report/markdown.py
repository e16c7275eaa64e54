"""The report as Markdown, for a terminal, a pull request or a README."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report.data import LatencyRow, ReportData, caveats, facts
from benchmarks.report.headline import headline_lines
from benchmarks.report.text import count, drop, duration, moment, number, outcome, percent, small


def report_markdown(data: ReportData) -> str:
    """Returns the whole report."""
    runs = f"{data.runs} timed runs each" if data.runs else ""
    recipe = data.recipe if data.recipe != data.title else ""
    lines = [f"# {data.title}", "", " · ".join(filter(None, (moment(data.created), recipe, data.device, runs))), ""]
    if data.verdict is not None:
        lines += [f"Verdict: **{outcome(data.verdict)}**", ""]
    for line in headline_lines(data):
        lines += [line, ""]
    lines += [f"> {line}" if number_ == 0 else f">\n> {line}" for number_, line in enumerate(caveats(data))]
    if data.artifacts or data.baselines:
        lines += ["", "## Artifacts", "", *_artifacts(data)]
    if any(row.by_length for row in (*data.baselines, *data.artifacts)):
        lines += ["", "## Median time by length", "", *_lengths(data)]
    if data.checks:
        lines += ["", "## Budget", "", *_checks(data)]
    if data.trends:
        lines += ["", "## History", "", *_trends(data)]
    if data.stages:
        lines += ["", "## Stages", "", *_stages(data)]
    if known := facts(data):
        lines += ["", "## Machine and versions", ""]
        lines += [f"- {name}: {value}" for part in known for name, value in part.items()]
    return "\n".join(lines) + "\n"


def _artifacts(data: ReportData) -> list[str]:
    rows = [
        [
            row.name,
            row.runtime,
            "",
            number(row.size_mb),
            percent(row.accuracy),
            "",
            "",
            "",
            *_times(row),
            _status("baseline", row),
        ]
        for row in data.baselines
    ]
    rows += [
        [
            row.name,
            row.precision,
            row.compute_precision,
            number(row.size_mb),
            percent(row.accuracy),
            drop(row.drop_points),
            small(row.parity_max_error),
            percent(row.label_agreement),
            *_times(row),
            _status(row.status, row, row.note),
        ]
        for row in data.artifacts
    ]
    head = [
        "name",
        "precision",
        "computes in",
        "MB",
        data.metric_name,
        "drop",
        "parity",
        "same label",
        "p50 ms",
        "p95 ms",
    ]
    return _table([*head, "p95 ms with tokenisation", "status"], rows, left={0, 1, 2, 11})


def _status(status: str, row: LatencyRow, note: str = "") -> str:
    invalid = "times invalid" if row.invalid_reason and status != "invalid" else ""
    return "; ".join(filter(None, (outcome(status), invalid, note)))


def _times(row: object) -> list[str]:
    return [number(getattr(row, name)) for name in ("p50_ms", "p95_ms", "total_p95_ms")]


def _lengths(data: ReportData) -> list[str]:
    subjects = [row for row in (*data.baselines, *data.artifacts) if row.by_length]
    lengths = sorted({length for row in subjects for length in row.by_length})
    rows = [[row.name, *(number(row.by_length.get(length)) for length in lengths)] for row in subjects]
    return _table(["ms", *(f"{length} tokens" for length in lengths)], rows, left={0})


def _checks(data: ReportData) -> list[str]:
    rows = [
        [
            check.artifact,
            check.device,
            f"`{check.name}`",
            f"{check.budget:g}",
            number(check.value),
            str(check.runs) if check.runs else "-",
            outcome(check.verdict),
            check.detail,
        ]
        for check in data.checks
    ]
    return _table(
        ["artifact", "device", "limit", "budget", "found", "runs", "verdict", "why"], rows, left={0, 1, 2, 6, 7}
    )


def _trends(data: ReportData) -> list[str]:
    rows = [
        [
            series.subject,
            series.device,
            series.setting,
            str(len(series.entries)),
            number(series.entries[0].p95_ms),
            number(series.entries[-1].p95_ms),
            "; ".join(change.text for change in series.changes) or "none found",
        ]
        for series in data.trends
    ]
    return _table(
        ["artifact", "device", "measured with", "measurements", "first p95 ms", "last p95 ms", "changes"],
        rows,
        left={0, 1, 2, 6},
    )


def _stages(data: ReportData) -> list[str]:
    rows = [
        [
            row.id,
            row.stage,
            row.status,
            duration(row.seconds),
            count(row.parameters),
            number(row.size_mb),
            percent(row.metric),
            row.note,
        ]
        for row in data.stages
    ]
    return _table(
        ["id", "stage", "status", "time", "parameters", "MB", data.metric_name, "note"], rows, left={0, 1, 2, 7}
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: set[int]) -> list[str]:
    rule = "|".join("---" if column in left else "---:" for column in range(len(head)))
    body = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", f"|{rule}|", *body]
