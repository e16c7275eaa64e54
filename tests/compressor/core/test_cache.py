"""Where results are kept between calls."""

import os
import time
from pathlib import Path

import pytest

from compressor.core.cache import cache_folder, keeps_results, make_room


def test_the_users_cache_folder_is_taken_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("COMPRESSOR_CACHE", raising=False)
    assert cache_folder("bundles") == tmp_path / "compressor" / "bundles"
    monkeypatch.setenv("COMPRESSOR_CACHE", str(tmp_path / "mine"))
    assert cache_folder("bundles") == tmp_path / "mine" / "bundles"
    assert keeps_results()


def test_with_an_empty_setting_large_results_are_not_kept_and_small_ones_have_their_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("COMPRESSOR_CACHE", "")
    assert not keeps_results()
    assert cache_folder("simulated") == tmp_path / "compressor" / "simulated"


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for age, name in enumerate(("new", "folder/part", "old", ".being-written")):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name.partition("/")[0], (1000 - age, 1000 - age))
    os.utime(tmp_path / ".being-written")
    make_room(tmp_path, 30)
    assert len(list(tmp_path.iterdir())) == 4
    make_room(tmp_path, 29)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".being-written", "folder", "new"]
    make_room(tmp_path, 15)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".being-written", "new"]


def test_what_a_killed_run_left_half_written_goes_after_a_day(tmp_path: Path) -> None:
    (tmp_path / ".folder").mkdir()
    for hours, name in ((25, ".abandoned.part"), (25, ".folder/part"), (23, ".being-written.part"), (25, "kept")):
        (tmp_path / name).write_bytes(bytes(10))
        used = time.time() - 3600 * hours
        os.utime(tmp_path / name.partition("/")[0], (used, used))
    make_room(tmp_path, 100)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".being-written.part", "kept"]
