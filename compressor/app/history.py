"""``history``: what a gate measured before, and where a time changed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.history import read
from benchmarks.report import write_report
from benchmarks.report.data import history_report
from benchmarks.trend import Series, series_of
from compressor.core.folders import disk_errors

_LOG = logging.getLogger(__name__)


def history(
    store: Path, *, artifact: str | None = None, device: str | None = None, output: Path | None = None
) -> tuple[Series, ...]:
    """Returns what was measured before, series by series, with the places where a time changed.

    Args:
        store: the SQLite file of ``gate --history``.
        artifact: only this one's.
        device: only this profile's, or this address's.
        output: folder for a report with the trend plots; not written where it is None.

    Raises:
        UsageError: the file is missing or is no history.
    """
    entries = read(store, subject=artifact, device=device)
    if invalid := sum(entry.invalid_reason is not None for entry in entries):
        _LOG.warning(
            "%d of %d measurements are left out: the machine was in no condition to measure", invalid, len(entries)
        )
    found = series_of(entries)
    if output is not None:
        with disk_errors(output):
            output.mkdir(parents=True, exist_ok=True)
        write_report(output, history_report(found, created=datetime.now(UTC).isoformat(timespec="seconds")))
    return found
