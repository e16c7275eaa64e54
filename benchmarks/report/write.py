"""Writes a report's three files."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import text
from benchmarks.report.data import ReportData, caveats, facts
from benchmarks.report.headline import headline, undecided
from benchmarks.report.markdown import report_markdown
from benchmarks.report.plots import plots
from compressor.core.folders import write_json, write_text

NAMES = ("report.md", "report.html", "report.json")


def write_report(folder: Path, data: ReportData) -> tuple[Path, ...]:
    """Writes ``report.md``, ``report.html`` (one file that loads nothing) and ``report.json`` into ``folder``.

    Returns:
        The paths, in that order.

    Raises:
        FolderError: the disk is full or the folder is not writable.
    """
    paths = tuple(folder / name for name in NAMES)
    write_text(paths[0], report_markdown(data))
    write_text(paths[1], report_html(data))
    write_json(paths[2], data.model_dump(mode="json"))
    return paths


def report_html(data: ReportData) -> str:
    """Returns the report as one HTML page with its styles and plots inside."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("benchmarks.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = ("number", "percent", "points", "drop", "small", "count", "duration", "outcome", "smaller", "moment")
    environment.globals["interval"] = text.interval
    environment.filters.update({name: getattr(text, name) for name in filters})
    subjects = [row for row in (*data.baselines, *data.artifacts) if row.by_length]
    return environment.get_template("report.html.jinja").render(
        data=data,
        facts=facts(data),
        headline=headline(data),
        undecided=undecided(data),
        caveats=caveats(data),
        plots={title: Markup(svg) for title, svg in plots(data).items()},
        measured=subjects,
        lengths=sorted({length for row in subjects for length in row.by_length}),
    )
