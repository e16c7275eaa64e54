"""How a figure is written, the same in Markdown and HTML."""

from __future__ import annotations

from datetime import UTC, datetime

NONE = "-"


def number(value: float | None, unit: str = "") -> str:
    """Returns three significant digits, never in scientific notation."""
    if value is None:
        return NONE
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f}{unit}"


def percent(value: float | None) -> str:
    """Returns a fraction as a percentage with one decimal."""
    return NONE if value is None else f"{100 * value:.1f} %"


def points(value: float | None) -> str:
    """Returns percentage points with a sign."""
    return NONE if value is None else "0.0" if abs(value) < 0.05 else f"{value:+.1f}"


def drop(value: float | None) -> str:
    """Returns a drop in percentage points; a gain is a negative drop."""
    return NONE if value is None else "0.0" if abs(value) < 0.05 else f"{value:.1f}"


def small(value: float | None) -> str:
    """Returns an error figure in scientific notation."""
    return NONE if value is None else f"{value:.0e}"


def count(value: int | None) -> str:
    """Returns a number of parameters in thousands or millions."""
    if value is None:
        return NONE
    if value >= 1_000_000:
        return f"{value / 1e6:.1f} M"
    return f"{value / 1e3:.1f} k" if value >= 1_000 else str(value)


def duration(seconds: float) -> str:
    """Returns seconds, or minutes and seconds."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def smaller(value: float) -> str:
    """Returns how a size compares: another size over it, as times smaller or larger."""
    return f"{number(value)} times smaller" if value >= 1 else f"{number(1 / value)} times larger"


def interval(low: float, high: float) -> str:
    """Returns the bounds of a figure, at the confidence that all of a report's intervals have."""
    return f"95 % interval {number(low)} to {number(high)}"


def moment(value: str) -> str:
    """Returns a time in ISO 8601 to the minute, in UTC; anything else as it is."""
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return value
    return value if found.tzinfo is None else f"{found.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def outcome(value: str) -> str:
    """Returns an outcome or status in words."""
    return value.replace("_", " ")
