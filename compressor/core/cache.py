"""Where results are kept that only save time: one folder in the user's cache, or another place, or nowhere."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "COMPRESSOR_CACHE"
"""Environment variable with the cache folder. Set to nothing, large results are not kept: :func:`keeps_results`."""


def cache_folder(name: str) -> Path:
    """Returns the folder ``name`` of ``$COMPRESSOR_CACHE`` (``$XDG_CACHE_HOME/compressor``), perhaps not there yet."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get(VARIABLE) or home / "compressor") / name


def keeps_results() -> bool:
    """Returns whether large results (conversions, teachers' outputs) may be kept between calls."""
    return os.environ.get(VARIABLE) != ""
