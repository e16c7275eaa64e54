"""Sequences kept in a file instead of in memory, so that a corpus may be larger than the machine.

The files are temporary and nameless: they vanish with the process, whatever ends it. They are read piece by piece, not
mapped, because pages of a mapped file count as memory of the process until the system takes them back. A few bytes an
item stay in memory: where it begins.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np

from compressor.core.folders import disk_errors
from compressor.core.schema import Text
from compressor.text import Encoded

_T = TypeVar("_T")
_BUFFER = 1 << 20
_SEPARATOR = "\0"


class Stored(Sequence[_T], Generic[_T]):
    """A sequence of items written once, in order; a slice is a tuple, and so is a pickled copy."""

    def __init__(self, items: Iterable[_T], folder: Path | None = None) -> None:
        self._offsets = array("q", [0])
        place = folder or Path(tempfile.gettempdir())
        with disk_errors(place):
            self._file = tempfile.TemporaryFile(dir=place, buffering=_BUFFER)  # noqa: SIM115  open as long as this
            for item in items:
                self._offsets.append(self._offsets[-1] + self._file.write(self._pack(item)))
            self._file.flush()

    def _pack(self, item: _T) -> bytes:
        raise NotImplementedError

    def _unpack(self, data: bytes) -> _T:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, index: int) -> _T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[_T, ...]: ...

    def __getitem__(self, index: int | slice) -> _T | tuple[_T, ...]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        place = range(len(self))[index]
        start, end = self._offsets[place], self._offsets[place + 1]
        # With an offset of its own, so that forked processes may read side by side.
        return self._unpack(os.pread(self._file.fileno(), end - start, start))

    def __iter__(self) -> Iterator[_T]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(one == two for one, two in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (tuple(self),)


class StoredTexts(Stored[Text]):
    """Texts, or pairs of texts."""

    def _pack(self, item: Text) -> bytes:
        # A text may hold any character but a pair is told from a single text by the first one, which is ours.
        first, *second = (item,) if isinstance(item, str) else item
        head = "" if not second else f"{len(first)}"
        return f"{head}{_SEPARATOR}{first}{''.join(second)}".encode("utf-8", "surrogatepass")

    def _unpack(self, data: bytes) -> Text:
        head, _, text = data.decode("utf-8", "surrogatepass").partition(_SEPARATOR)
        return (text[: int(head)], text[int(head) :]) if head else text


class StoredTokens(Stored[Encoded]):
    """Token ids of sentences, with ``lengths`` in memory.

    Args:
        items: the sentences.
        folder: where the file is; default the system's place for temporary files.
    """

    def __init__(self, items: Iterable[Encoded], folder: Path | None = None) -> None:
        self.lengths = array("i")
        super().__init__(items, folder)

    def _pack(self, item: Encoded) -> bytes:
        self.lengths.append(len(item))
        return (
            np.asarray([item.truncated], np.uint8).tobytes()
            + np.asarray(item.type_ids, np.uint8).tobytes()
            + np.asarray(item.ids, np.int32).tobytes()
        )

    def _unpack(self, data: bytes) -> Encoded:
        tokens = (len(data) - 1) // 5
        ids = np.frombuffer(data, np.int32, offset=1 + tokens)
        return Encoded(tuple(ids.tolist()), tuple(data[1 : 1 + tokens]), bool(data[0]))
