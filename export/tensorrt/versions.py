"""Versions of TensorRT: what a device brings, and what each generation can read."""

from __future__ import annotations

import re

from compressor.core.errors import UsageError
from compressor.core.schema import Record

FIRST_LAYER_NORMALIZATION = (8, 6)
"""The parser knows the operator from here on (onnx/onnx-tensorrt, docs/Changelog.md, 8.6 EA)."""
FIRST_STRONGLY_TYPED = (10, 0)
"""Networks take their types from the graph, Q/DQ take half-precision scales and int8 weights are read as they are.

Strong typing itself came with 9, which no JetPack brought.
"""

RANGE_KEY = "compressor.tensorrt"
"""Where the ONNX file states the versions on the device it was converted for."""

Version = tuple[int, int]


class VersionRange(Record):
    """Versions from ``oldest`` to ``newest``, both included."""

    oldest: Version
    newest: Version

    @property
    def text(self) -> str:
        """The range as text, ``8.0 - 8.2``."""
        return " - ".join(".".join(map(str, version)) for version in (self.oldest, self.newest))


def parse_range(text: str) -> VersionRange:
    """Reads ``10.3`` or ``8.6 - 10.3``, as a device profile states it.

    Raises:
        UsageError: the text is something else, or its first version is later than its last.
    """
    found = [(int(major), int(minor or 0)) for major, minor in re.findall(r"(\d+)(?:\.(\d+))?(?:\.\d+)*", text)]
    if len(found) not in (1, 2) or found[0] > found[-1]:
        raise UsageError(f"'{text}' is no range of TensorRT versions", remedy="write for example 8.6 - 10.3")
    return VersionRange(oldest=found[0], newest=found[-1])
