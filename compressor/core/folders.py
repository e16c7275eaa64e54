"""Folders that are either whole or absent: written beside their target and renamed into place."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from compressor.core.errors import FolderError

MARKER = ".compressor.json"
"""Name of the file that says a folder was written by this project."""

_PLACE_ERRORS = {
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOENT: "its folder does not exist",
    errno.ENOTDIR: "a file stands where a folder is needed",
    errno.EEXIST: "a file stands where a folder is needed",
    errno.EISDIR: "a folder stands where a file is needed",
}

Kind = Literal["run", "checkpoint", "artifact", "bundle", "result"]


def write_json(path: Path, value: object) -> None:
    """Writes ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, sort_keys=False, default=str) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8 text through a temporary file beside ``path``.

    Raises:
        FolderError: the disk is full or the place is not writable; an older file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with disk_errors(path):
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink()


def marker(folder: Path) -> dict[str, str] | None:
    """Returns what the marker file of ``folder`` says (``kind``, ``key``), or None where there is none."""
    try:
        value = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_marker(folder: Path, kind: Kind, key: str = "") -> None:
    """Marks ``folder`` as ours; ``key`` is the cache key of the step that made it."""
    write_json(folder / MARKER, {"kind": kind, "key": key, "schema_version": 1})


def ensure_ours(folder: Path, kind: Kind, *, force: bool = False) -> None:
    """Refuses to write over a non-empty folder that this project did not make.

    Raises:
        FolderError: the folder exists, is not empty and carries no marker of the same kind.
    """
    if force or not folder.exists():
        return
    if not folder.is_dir():
        raise FolderError(f"{folder} is a file; expected a folder to write to", remedy="name another output folder")
    found = marker(folder)
    if any(folder.iterdir()) and (found is None or found.get("kind") != kind):
        what = "not written by compressor" if found is None else f"a compressor {found.get('kind')} folder"
        raise FolderError(
            f"{folder} is not empty and is {what}; expected a new folder or an earlier {kind} folder",
            remedy="name another output folder, or pass --force to replace it",
        )


def check_writable(file: Path) -> None:
    """Proves, before long work for it, that a file can be written; makes the folder it is to stand in.

    Raises:
        FolderError: a folder stands there, or nothing can be written there.
    """
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            file.open("ab").close()
        else:
            with tempfile.TemporaryFile(dir=file.parent):
                pass


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turns a full disk or a refused write into a FolderError that names ``target``."""
    try:
        yield
    except FolderError:
        raise
    except Exception as error:
        if _disk_is_full(error):
            raise FolderError(
                f"the disk that holds {target} is full ({_free_mb(target):.0f} MB free); nothing was replaced",
                remedy="free some space or name an output folder on another disk, then run the same command again",
            ) from error
        if isinstance(error, OSError) and error.errno in _PLACE_ERRORS:
            raise FolderError(
                f"{target} cannot be written: {_PLACE_ERRORS[error.errno]}", remedy="name another place to write to"
            ) from error
        raise


def _disk_is_full(error: Exception) -> bool:
    """Native writers (safetensors, onnx) report a full disk by text alone, not as an OSError."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return "No space left on device" in str(error)


@contextmanager
def new_folder(target: Path, kind: Kind, *, key: str = "", force: bool = False) -> Iterator[Path]:
    """Yields an empty folder beside ``target`` and, if the block succeeds, renames it to ``target``.

    A block that raises (Ctrl-C included) leaves ``target`` exactly as it was. An older folder of the same kind is
    replaced; the swap keeps it aside until the new one is in place.

    Raises:
        FolderError: ``target`` is not ours, the disk is full, or the place is not writable.
    """
    restore(target)
    ensure_ours(target, kind, force=force)
    fresh = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.new")
    with disk_errors(target):
        fresh.mkdir(parents=True)
    try:
        with disk_errors(target):
            yield fresh
            write_marker(fresh, kind, key)
            swap(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def swap(fresh: Path, target: Path) -> None:
    """Renames ``fresh`` to ``target``; what stood there is removed only when the new one is in place."""
    restore(target)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.old")
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(aside)
    try:
        fresh.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink()


def restore(target: Path) -> None:
    """Puts an older folder back that a kill between the two renames of :func:`swap` left aside."""
    asides = sorted(target.parent.glob(f".{target.name}.*.old"), key=lambda path: path.stat().st_mtime)
    if asides and not target.exists():
        asides.pop().rename(target)
    for path in asides:
        shutil.rmtree(path, ignore_errors=True)


def _free_mb(target: Path) -> float:
    folder = target
    while not folder.exists():
        folder = folder.parent
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize / 1e6
