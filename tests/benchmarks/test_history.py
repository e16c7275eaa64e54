from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.history import Entry, append, check_store, entry_of, read
from benchmarks.report.data import history_report
from benchmarks.report.write import report_html, write_report
from benchmarks.trend import change_points, series_of
from compressor.core.errors import UsageError
from tests.benchmarks.measurements import measurement


def entries(levels: list[float], *, seed: int = 0, **changes) -> list[Entry]:
    random = np.random.default_rng(seed)
    return [
        entry_of(
            measurement(level * np.exp(0.05 * random.normal(size=100)), **changes),
            recorded=f"2026-01-{number + 1:02d}T00:00:00+00:00",
            commit_id=f"{number:040x}",
            verdict="pass",
        )
        for number, level in enumerate(levels)
    ]


def test_what_is_appended_is_read_back_in_order(tmp_path: Path) -> None:
    store = tmp_path / "made" / "history.sqlite"
    made = [*entries([1.0, 2.0]), *entries([3.0], subject="other", device="mobile-cpu@adb:X")]
    append(store, made[:1])
    append(store, made[1:])
    assert read(store) == made
    assert read(store, subject="other") == made[2:]
    assert read(store, device="mobile-cpu") == read(store, device="mobile-cpu@adb:X") == made[2:]
    assert read(store, device="nowhere") == []


def test_a_file_that_is_no_history_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("not a database, but long enough to be taken for a header of one " * 20)
    text = other.read_text()
    with pytest.raises(UsageError, match="cannot be used as a history"):
        append(other, entries([1.0]))
    assert other.read_text() == text
    with pytest.raises(UsageError, match="does not exist"):
        read(tmp_path / "missing.sqlite")
    assert not (tmp_path / "missing.sqlite").exists()


def test_another_program_s_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    import sqlite3

    other = tmp_path / "app.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE users (id)")
    connection.close()
    content = other.read_bytes()
    for use in (check_store, read, lambda store: append(store, entries([1.0]))):
        with pytest.raises(UsageError, match="with the tables users"):
            use(other)
    assert other.read_bytes() == content


def test_reading_and_checking_write_nothing(tmp_path: Path) -> None:
    store, empty = tmp_path / "history.sqlite", tmp_path / "empty.sqlite"
    append(store, entries([1.0]))
    empty.touch()
    content = store.read_bytes()
    check_store(store)
    check_store(empty)
    assert len(read(store)) == 1
    with pytest.raises(UsageError, match="cannot be used as a history"):
        read(empty)
    assert (store.read_bytes(), empty.read_bytes()) == (content, b"")
    append(empty, entries([1.0]))
    assert len(read(empty)) == 1


def test_a_history_of_a_later_version_is_refused(tmp_path: Path) -> None:
    import sqlite3

    store = tmp_path / "history.sqlite"
    append(store, entries([1.0]))
    with sqlite3.connect(store) as connection:
        connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(UsageError, match="version 9"):
        read(store)


def test_a_change_of_level_is_found_where_it_happened() -> None:
    (change,) = change_points(entries([1.0] * 10 + [1.3] * 8))
    assert change.index == 10
    assert change.commit_id == f"{10:040x}"
    assert change.after_ms / change.before_ms == pytest.approx(1.3, rel=0.03)
    assert f"({change.after_ms / change.before_ms - 1:+.0%})" in change.text


def test_two_changes_are_found_and_noise_and_single_outliers_are_not() -> None:
    assert [item.index for item in change_points(entries([1.0] * 9 + [1.5] * 9 + [1.1] * 9))] == [9, 18]
    quiet = [change_points(entries([1.0] * 20, seed=seed)) for seed in range(30)]
    assert sum(bool(found) for found in quiet) <= 2
    assert change_points(entries([1.0] * 8 + [5.0] + [1.0] * 8)) == ()
    assert change_points(entries([1.0, 9.0])) == ()


def test_machines_runtimes_and_invalid_measurements_are_kept_apart() -> None:
    mixed = [
        *entries([1.0] * 3),
        *entries([2.0], subject="other"),
        *entries([9.0], invalid_reason="throttled"),
        entries([1.0])[0].model_copy(update={"fingerprint": {"cpu": "another"}}),
        entries([1.0])[0].model_copy(update={"runtime": "onnxruntime 9"}),
    ]
    found = series_of(mixed)
    assert sorted(len(item.entries) for item in found) == [1, 1, 1, 3]


def test_the_report_shows_the_trend_and_its_change(tmp_path: Path) -> None:
    data = history_report(series_of(entries([1.0] * 10 + [1.4] * 8)), created="2026-02-01")
    markdown = write_report(tmp_path, data)[0].read_text(encoding="utf-8")
    assert "## History" in markdown
    assert "2026-01-11 at 0000000000: p95" in markdown
    page = report_html(data)
    assert 'aria-label="trends"' in page
    assert "p95 over time" in page


def test_a_history_alone_has_no_empty_parts_and_tells_its_series_apart(tmp_path: Path) -> None:
    data = history_report(series_of(entries([1.0, 1.1])), created="2026-02-01T08:30:12+01:00")
    markdown = write_report(tmp_path, data)[0].read_text(encoding="utf-8")
    page = report_html(data)
    for text in (markdown, page):
        assert "Machine and versions" not in text
        assert "onnxruntime 0.0, 1 thread, test" in text
        assert "2026-02-01 07:30 UTC" in text
        assert "no estimate of a phone" in text.replace("&#39;", "'")
    phone = history_report(series_of(entries([1.0], device="pixel-4@adb:X")), created="2026-02-01")
    assert "no estimate of a phone" not in write_report(tmp_path, phone)[0].read_text(encoding="utf-8")
