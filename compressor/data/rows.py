"""Rows of a ``.npy`` file, read and written in place of mapping it: mapped pages count as memory of the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np


class NpyRows:
    """The rows of an array of shape (rows, width) in a file.

    Args:
        file: a ``.npy`` file with such an array.
        writable: whether rows may be written.
    """

    def __init__(self, file: Path, *, writable: bool = False) -> None:
        layout: np.memmap[Any, Any] = np.load(file, mmap_mode="r")
        self._begin, self._dtype, self._width = layout.offset, layout.dtype, layout.shape[1]
        self._file = file.open("r+b" if writable else "rb", buffering=0)

    @classmethod
    def create(cls, file: Path, rows: int, width: int, dtype: Any) -> NpyRows:
        """Returns the writable rows of a new file, all zero."""
        np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=(rows, width))
        return cls(file, writable=True)

    def read(self, start: int, end: int) -> np.ndarray:
        """Returns the rows from ``start`` up to ``end``."""
        row = self._width * self._dtype.itemsize
        # With an offset of its own, so that forked processes may read side by side.
        found = os.pread(self._file.fileno(), (end - start) * row, self._begin + start * row)
        return np.frombuffer(found, self._dtype).reshape(end - start, self._width)

    def write(self, start: int, values: np.ndarray) -> None:
        """Writes rows from ``start`` on."""
        content = np.ascontiguousarray(values, self._dtype)
        self._file.seek(self._begin + start * self._width * self._dtype.itemsize)
        self._file.write(content.tobytes())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
