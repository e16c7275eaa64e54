"""Where results are kept that only save time: one folder in the user's cache, or another place, or nowhere."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

VARIABLE = "COMPRESSOR_CACHE"
"""Environment variable with the cache folder. Set to nothing, large results are not kept: :func:`keeps_results`."""
_ABANDONED_S = 86_400.0
"""A file that is being written changes more often than once a day."""


def cache_folder(name: str) -> Path:
    """Returns the folder ``name`` of ``$COMPRESSOR_CACHE`` (``$XDG_CACHE_HOME/compressor``), perhaps not there yet."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or home / "compressor") / name


def keeps_results() -> bool:
    """Returns whether large results (conversions, teachers' outputs) may be kept between calls."""
    return os.environ.get(VARIABLE) != ""


def make_room(folder: Path, max_bytes: int) -> None:
    """Removes the files and sub-folders of ``folder`` that were not used for longest until the rest fits.

    What cannot be looked at or removed (another process did it first, or is at it) is passed over, as are names that
    begin with a dot: they are being written. What nobody touched of those for a day was left by a killed run, and goes.
    """
    found = []
    for entry in folder.glob("*"):
        try:
            files = [entry] if entry.is_file() else [*entry.iterdir()]
            used = entry.stat().st_mtime
            size = sum(file.stat().st_size for file in files)
        except OSError:
            continue
        if not entry.name.startswith("."):
            found.append((used, size, entry))
        elif used < time.time() - _ABANDONED_S:
            _remove(entry)
    total = sum(size for _, size, _ in found)
    for _, size, entry in sorted(found):
        if total <= max_bytes:
            return
        _remove(entry)
        total -= size


def _remove(entry: Path) -> None:
    if entry.is_file():
        entry.unlink(missing_ok=True)
    else:
        shutil.rmtree(entry, ignore_errors=True)
