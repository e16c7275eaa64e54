"""What was measured before: a small SQLite file, one row a measurement, appended to and never rewritten."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.statistics import summary
from compressor.core.errors import UsageError
from compressor.core.folders import check_writable, disk_errors
from compressor.core.measurement import Measurement
from compressor.core.schema import Record

SCHEMA_VERSION = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS measurements (
    id INTEGER PRIMARY KEY,
    recorded TEXT NOT NULL, commit_id TEXT NOT NULL, subject TEXT NOT NULL, subject_hash TEXT NOT NULL,
    device TEXT NOT NULL, runtime TEXT NOT NULL, fingerprint TEXT NOT NULL, threads INTEGER NOT NULL,
    runs INTEGER NOT NULL, processes INTEGER NOT NULL, p50_ms REAL NOT NULL, p95_ms REAL NOT NULL,
    p95_low_ms REAL, p95_high_ms REAL, total_p95_ms REAL, cold_ms REAL NOT NULL, peak_memory_mb REAL,
    invalid_reason TEXT, verdict TEXT
)
"""


class Entry(Record):
    """One measurement of the past. Times are per sentence."""

    recorded: str
    """When, in ISO 8601 with its offset."""
    commit_id: str
    """The source revision it was made from; empty where it is not known."""
    subject: str
    subject_hash: str
    device: str
    runtime: str
    fingerprint: dict[str, str]
    threads: int
    runs: int
    processes: int
    p50_ms: float
    p95_ms: float
    p95_low_ms: float | None
    p95_high_ms: float | None
    """A 95 % interval of the p95."""
    total_p95_ms: float | None
    cold_ms: float
    peak_memory_mb: float | None
    invalid_reason: str | None
    verdict: str | None
    """The gate's, for this subject; None where there was none."""


def entry_of(measurement: Measurement, *, recorded: str, commit_id: str = "", verdict: str | None = None) -> Entry:
    """Returns a measurement as a row of the history."""
    figures = summary(measurement)
    interval = figures.intervals["p95_ms"]
    return Entry(
        recorded=recorded, commit_id=commit_id, subject=measurement.subject, subject_hash=measurement.subject_hash,
        device=measurement.device, runtime=measurement.runtime, fingerprint=measurement.fingerprint,
        threads=measurement.threads, runs=figures.runs, processes=measurement.processes, p50_ms=figures.p50_ms,
        p95_ms=figures.p95_ms, p95_low_ms=interval.low, p95_high_ms=interval.high, total_p95_ms=figures.total_p95_ms,
        cold_ms=figures.cold_ms, peak_memory_mb=figures.peak_memory_mb, invalid_reason=figures.invalid_reason,
        verdict=verdict,
    )  # fmt: skip


def check_store(store: Path) -> None:
    """Proves, before anything is measured for it, that entries can be added to a file; a missing one is not made.

    Raises:
        UsageError: the file is no history, or one of a later version.
        FolderError: the place is not writable.
    """
    check_writable(store)
    if store.exists():
        with _open(store):
            pass


def append(store: Path, entries: Sequence[Entry]) -> None:
    """Adds entries in one transaction; the file is made where it is missing.

    Raises:
        UsageError: the file is no history, or one of a later version.
        FolderError: the place is not writable.
    """
    names = tuple(Entry.model_fields)
    marks = ", ".join(f":{name}" for name in names)
    with disk_errors(store):
        store.parent.mkdir(parents=True, exist_ok=True)
    with _open(store) as connection:
        connection.execute(_TABLE)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        rows = [{**entry.model_dump(), "fingerprint": json.dumps(entry.fingerprint)} for entry in entries]
        connection.executemany(f"INSERT INTO measurements ({', '.join(names)}) VALUES ({marks})", rows)


def read(store: Path, *, subject: str | None = None, device: str | None = None) -> list[Entry]:
    """Returns the entries, oldest first.

    Args:
        store: the file.
        subject: only this artifact's.
        device: only this profile's, or this address's.

    Raises:
        UsageError: the file is missing or is no history.
    """
    if not store.is_file():
        raise UsageError(f"{store} does not exist; expected a history", remedy="gate with --history FILE to begin one")
    with _open(store) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute(f"SELECT {', '.join(Entry.model_fields)} FROM measurements ORDER BY id").fetchall()
    entries = [Entry.model_validate({**row, "fingerprint": json.loads(row["fingerprint"])}) for row in map(dict, found)]
    return [
        entry
        for entry in entries
        if subject in (None, entry.subject) and device in (None, entry.device, entry.device.partition("@")[0])
    ]


@contextmanager
def _open(store: Path) -> Iterator[sqlite3.Connection]:
    """Opens a store, commits what the block wrote, or rolls it back."""
    try:
        connection = sqlite3.connect(store, timeout=30.0)
        try:
            _check_ours(store, connection)
            with connection:
                yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UsageError(
            f"{store} cannot be used as a history: {error}; expected a SQLite file of 'compressor gate --history'",
            remedy="name another file, or a place that can be written",
        ) from error


def _check_ours(store: Path, connection: sqlite3.Connection) -> None:
    """Refuses another program's database and a later version; an empty file may become a history."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if version not in (0, SCHEMA_VERSION) and "measurements" in tables:
        raise UsageError(
            f"{store} is a history of version {version}; this program knows {SCHEMA_VERSION}",
            remedy="use the program that wrote it, or begin a new file",
        )
    if tables and "measurements" not in tables:
        raise UsageError(
            f"{store} is another program's database, with the tables {', '.join(sorted(tables))}; expected a SQLite "
            "file of 'compressor gate --history'",
            remedy="name another file",
        )
