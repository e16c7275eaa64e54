"""What a benchmark program reports, in one form, and how much of it can be believed."""

from __future__ import annotations

from compressor.core.schema import Record


class ToolResult(Record):
    """One run of a benchmark program; times in milliseconds."""

    tool: str
    version: str | None = None
    runs_ms: tuple[float, ...] = ()
    """Every single time; empty where the program gives a summary only."""
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    min_ms: float | None = None
    max_ms: float | None = None
    std_ms: float | None = None
    count: int | None = None
    load_ms: float | None = None
    cold_ms: float | None = None
    """The first inference."""
    peak_memory_mb: float | None = None
    """Of the whole process, or its growth, as the program counts it."""
    notes: tuple[str, ...] = ()

    @property
    def point_estimate(self) -> bool:
        """True where no interval can be given: the program kept no single times."""
        return not self.runs_ms

    @property
    def confidence(self) -> str:
        """What may be said of the figures."""
        return "point estimate, no confidence" if self.point_estimate else f"{len(self.runs_ms)} single runs"
