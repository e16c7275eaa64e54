import errno
from pathlib import Path

import pytest

from compressor.core.errors import FolderError
from compressor.core.folders import marker, new_folder, swap, write_json


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_finished_block_leaves_the_new_folder_and_nothing_else(tmp_path):
    with new_folder(tmp_path / "out", "artifact", key="k1") as folder:
        (folder / "a.txt").write_text("new")
        assert not (tmp_path / "out").exists()
    assert names(tmp_path) == {"out"}
    assert (tmp_path / "out" / "a.txt").read_text() == "new"
    assert marker(tmp_path / "out") == {"kind": "artifact", "key": "k1", "schema_version": 1}


@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_a_block_that_fails_leaves_the_old_folder_as_it_was(tmp_path, error):
    with new_folder(tmp_path / "out", "artifact") as folder:
        (folder / "a.txt").write_text("old")
    with pytest.raises(type(error)), new_folder(tmp_path / "out", "artifact") as folder:
        (folder / "a.txt").write_text("new")
        raise error
    assert names(tmp_path) == {"out"}
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


@pytest.mark.parametrize(
    "full",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_told_and_the_old_folder_stays(tmp_path, full):
    with new_folder(tmp_path / "out", "artifact") as folder:
        (folder / "a.txt").write_text("old")
    with pytest.raises(FolderError, match="is full") as caught, new_folder(tmp_path / "out", "artifact"):
        raise full
    assert "free some space" in caught.value.remedy
    assert names(tmp_path) == {"out"}
    assert (tmp_path / "out" / "a.txt").read_text() == "old"


def test_a_foreign_folder_is_not_replaced_without_force(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.txt").write_text("years of work")
    with pytest.raises(FolderError, match="not written by compressor"), new_folder(tmp_path / "thesis", "run"):
        pass
    assert (tmp_path / "thesis" / "chapter1.txt").read_text() == "years of work"
    with new_folder(tmp_path / "thesis", "run", force=True):
        pass
    assert not (tmp_path / "thesis" / "chapter1.txt").exists()


def test_a_folder_of_another_kind_is_not_replaced(tmp_path):
    with new_folder(tmp_path / "out", "checkpoint"):
        pass
    with pytest.raises(FolderError, match="a compressor checkpoint folder"), new_folder(tmp_path / "out", "artifact"):
        pass


def test_a_file_in_the_way_is_told(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(FolderError, match="is a file"), new_folder(tmp_path / "out", "run"):
        pass


def test_a_json_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    write_json(tmp_path / "a.json", {"x": 1})

    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(FolderError, match="is full"):
        write_json(tmp_path / "a.json", {"x": 2})
    assert names(tmp_path) == {"a.json"}
    assert '"x": 1' in (tmp_path / "a.json").read_bytes().decode()


def test_swap_replaces_a_file_by_a_folder(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "target").write_text("old")
    swap(tmp_path / "new", tmp_path / "target")
    assert names(tmp_path) == {"target"}
    assert (tmp_path / "target").is_dir()


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path):
    with new_folder(tmp_path / "out", "artifact") as folder:
        (folder / "a.txt").write_text("old")
    (tmp_path / "out").rename(tmp_path / ".out.1234abcd.old")
    with pytest.raises(ValueError, match="stop"), new_folder(tmp_path / "out", "artifact"):
        assert (tmp_path / "out" / "a.txt").read_text() == "old"
        raise ValueError("stop")
    assert names(tmp_path) == {"out"}


@pytest.mark.parametrize("place", ["file/out", "missing"])
def test_a_place_that_cannot_be_written_is_told(tmp_path, place):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match="cannot be written"):
        write_json(tmp_path / place / "x.json", {})
