"""The report's plots as inline SVG: text stays text, colours follow the page, nothing is fetched."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from benchmarks.report.data import ArtifactRow, BaselineRow, ReportData

_INK = "#0a0b0c"
"""Stands for the page's text colour; replaced by ``currentColor`` in the SVG."""
_GRID = "#8a8f98"
_COLORS = {"onnx": "#2f6fb3", "tflite": "#1b8a6b", "tensorrt": "#8a5bb0", "baseline": "#8a8f98"}
_LINES = ("#2f6fb3", "#1b8a6b", "#c2622d", "#8a5bb0", "#b0902b", "#b14a68")
_WIDTH = 6.2
_MOST_POINTS = 400
"""Of one curve: about one a pixel; a page of all steps of a long training would have megabytes."""
_MOST_LABELS = 8
_DASHES = {"fp32": "-", "fp16": "--", "int8": "-", "mixed": ":"}
_SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _GRID,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}
Row = ArtifactRow | BaselineRow


def plots(data: ReportData) -> dict[str, str]:
    """Returns {title: SVG} of the plots for which there are figures."""
    import matplotlib as mpl

    with mpl.rc_context(_SETTINGS):
        drawn = {
            f"{data.metric_name.capitalize()} against median time (area: size)": _tradeoff(data),
            "Size of the model files": _sizes(data),
            "Median time by length": _lengths(data),
            "Training losses": _losses(data),
            "p95 over time (dashed: change of level)": _trends(data),
        }
    return {title: svg for title, svg in drawn.items() if svg}


def _tradeoff(data: ReportData) -> str:
    rows = [row for row in _rows(data) if row.p50_ms and row.accuracy is not None and row.size_mb]
    if not rows:
        return ""
    figure, axes = _figure(_WIDTH, 3.9)
    for row in rows:
        axes.scatter(
            row.p50_ms,
            100 * (row.accuracy or 0),
            s=_area(row),
            color=_color(row),
            alpha=0.55,
            linewidths=0,
        )
        axes.scatter(row.p50_ms, 100 * (row.accuracy or 0), s=9, color=_color(row))
    times = [row.p50_ms or 0.0 for row in rows]
    axes.set_xscale("log")
    axes.set_xlim(min(times) / 1.8, max(times) * 2.2)
    axes.margins(y=0.25)
    _plain_log_ticks(axes.xaxis)
    axes.set_xlabel("p50 per sentence, ms (log scale)")
    axes.set_ylabel(f"{data.metric_name}, %")
    shown = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if shown[0] <= tick <= min(shown[1], 100)])
    axes.set_ylim(shown)
    _label(axes, rows)
    return _svg(figure, "tradeoff")


def _label(axes: Any, rows: Sequence[Row]) -> None:
    """Writes each point's name where it hides no other, topmost first; a name that finds no place is left out."""
    axes.figure.draw_without_rendering()  # fixes the layout, so that data coordinates have their final place
    to_pixels = axes.transData.transform
    pixels = [to_pixels((row.p50_ms, 100 * (row.accuracy or 0))) for row in rows]
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in pixels]
    scale = axes.figure.dpi / 72
    gaps = {row.name: (_area(row) / math.pi) ** 0.5 + 3 for row in rows}
    for row, (x, y) in sorted(zip(rows, pixels, strict=True), key=lambda item: -float(item[1][1])):
        width, height = 5.0 * len(row.name) * scale, 12 * scale
        places = [(side, up) for up in (0, 1, -1, 2, -2, 3, -3, 4, -4) for side in ("left", "right")]
        for side, up in places:
            gap = gaps[row.name] * scale
            left = x + gap if side == "left" else x - gap - width
            box = (left, y + (up - 0.5) * height, left + width, y + (up + 0.5) * height)
            inside = (
                axes.bbox.x0 <= box[0] and box[2] <= axes.bbox.x1 and axes.bbox.y0 <= box[1] and box[3] <= axes.bbox.y1
            )
            if inside and not any(_overlap(box, other) for other in taken):
                break
        else:
            continue
        taken.append(box)
        axes.annotate(
            row.name,
            (row.p50_ms, 100 * (row.accuracy or 0)),
            xytext=(gaps[row.name] if side == "left" else -gaps[row.name], up * height / scale),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=9,
            color=_color(row),
        )


def _area(row: Row) -> float:
    """Returns a point's area in square points: proportional to the size on disk, never too small to see."""
    return 20 + 5 * (row.size_mb or 0)


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _sizes(data: ReportData) -> str:
    rows = [row for row in _rows(data) if row.size_mb]
    if not rows:
        return ""
    figure, axes = _figure(_WIDTH, 0.9 + 0.34 * len(rows))
    names = [row.name for row in rows]
    bars = axes.barh(names, [row.size_mb for row in rows], color=[_color(row) for row in rows], height=0.62)
    axes.bar_label(bars, [f"{row.size_mb:.1f}" for row in rows], padding=4, fontsize=9)
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.margins(x=0.1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("MB (10⁶ bytes)")
    return _svg(figure, "sizes")


def _lengths(data: ReportData) -> str:
    rows = [row for row in _rows(data) if len(row.by_length) > 1]
    if not rows:
        return ""
    figure, axes = _figure(_WIDTH, 4.4)
    for row in rows:
        lengths = sorted(row.by_length)
        style = _DASHES.get(getattr(row, "precision", "fp32"), "-")
        marker = "o" if getattr(row, "precision", "") == "int8" else None
        times = [row.by_length[length] for length in lengths]
        axes.plot(lengths, times, style, color=_color(row), marker=marker, markersize=4, linewidth=1.6, label=row.name)
    ticks = sorted({length for row in rows for length in row.by_length})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    _plain_log_ticks(axes.yaxis)
    axes.set_xlabel("tokens")
    axes.set_ylabel("p50 per sentence, ms (log scale)")
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    return _svg(figure, "lengths")


def _losses(data: ReportData) -> str:
    stages = [row for row in data.stages if any(len(curve) > 1 for curve in row.curves.values())]
    if not stages:
        return ""
    figure, panels = _figure(_WIDTH, 2.0 * len(stages), rows=len(stages))
    for stage, axes in zip(stages, panels if len(stages) > 1 else [panels], strict=True):
        for (name, curve), color in zip(stage.curves.items(), _LINES * len(stage.curves), strict=False):
            axes.plot(*_thinned(curve), color=color, linewidth=1.3, label=name)
        axes.set_title(f"{stage.id} ({stage.stage})", loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, fontsize=9, loc="upper right")
    (panels[-1] if len(stages) > 1 else panels).set_xlabel("step")
    return _svg(figure, "losses")


def _trends(data: ReportData) -> str:
    shown = [series for series in data.trends if len(series.entries) > 1]
    if not shown:
        return ""
    figure, panels = _figure(_WIDTH, 0.4 + 2.0 * len(shown), rows=len(shown))
    for series, axes, color in zip(shown, panels if len(shown) > 1 else [panels], _LINES * len(shown), strict=False):
        values = [entry.p95_ms for entry in series.entries]
        lows = [value - (entry.p95_low_ms or value) for value, entry in zip(values, series.entries, strict=True)]
        highs = [(entry.p95_high_ms or value) - value for value, entry in zip(values, series.entries, strict=True)]
        axes.errorbar(
            range(len(values)), values, yerr=[lows, highs], fmt="o-", color=color, markersize=3.5, linewidth=1
        )
        for change in series.changes:
            axes.axvline(change.index - 0.5, color=_GRID, linestyle="--", linewidth=1)
        every = max(1, math.ceil(len(values) / _MOST_LABELS))
        ticks = list(range(0, len(values), every))
        axes.set_xticks(
            ticks, [series.entries[tick].commit_id[:7] or series.entries[tick].recorded[:10] for tick in ticks]
        )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("p95, ms")
        axes.set_title(f"{series.name} ({series.setting})", loc="left", fontsize=10)
    return _svg(figure, "trends")


def _thinned(curve: Sequence[float | None]) -> tuple[list[float], list[float]]:
    """Returns (steps counted from 1, values): at most ``_MOST_POINTS`` points, each the mean of a block.

    A block without a value is NaN, which leaves a gap in the line.
    """
    width = math.ceil(len(curve) / _MOST_POINTS)
    blocks = [curve[start : start + width] for start in range(0, len(curve), width)]
    steps = [1 + index * width + (len(block) - 1) / 2 for index, block in enumerate(blocks)]
    known = [[value for value in block if value is not None] for block in blocks]
    return steps, [sum(values) / len(values) if values else math.nan for values in known]


def _rows(data: ReportData) -> tuple[Row, ...]:
    return (*data.baselines, *data.artifacts)


def _color(row: Row) -> str:
    return _COLORS[row.format] if isinstance(row, ArtifactRow) else _COLORS["baseline"]


def _figure(width: float, height: float, *, rows: int = 1) -> tuple[Any, Any]:
    """Returns a figure and its axes, without pyplot's global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, 1)


def _plain_log_ticks(axis: Any) -> None:
    """Writes 1, 2, 5, 10, … in plain digits on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _svg(figure: Any, name: str) -> str:
    """Returns the figure as an SVG element that scales with the page."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    start, end = text.split(">", 1)
    kept = [part for part in start.split('" ') if not part.strip().startswith(("width=", "height="))]
    return '" '.join(kept) + f'" role="img" aria-label="{name}">' + end
