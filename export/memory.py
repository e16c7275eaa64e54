"""How much memory there is and how much a format's conversion takes: what decides what may run side by side."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

from compressor.core.artifact import Format

_CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Limit and use of a container's memory, in its second and first version."""
_SHARE = 0.8
"""Of what is free: the rest is for everything else on the machine."""
_BASE_BYTES = 1_000_000_000
"""A process with torch, transformers and a format's libraries loaded."""
_COPIES: dict[Format, float] = {"onnx": 5.0, "tflite": 8.0, "tensorrt": 5.0, "onnx-qnn": 5.0}
"""Peak above the base in units of the unique parameter bytes, all precisions; `benchmarks.studies.conversion_cost`."""


def predicted_peak(format_name: Format, parameter_bytes: int) -> int:
    """Returns the bytes that a process needs to export one format of a model with this many bytes of parameters."""
    return _BASE_BYTES + int(_COPIES[format_name] * parameter_bytes)


def budget_bytes() -> int:
    """Returns the bytes that conversions may take together: a share of what machine and container have free."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for limit, used in _CGROUPS:
        try:
            free.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):  # no such version, or "max": no limit
            continue
    return int(_SHARE * max(0, min(free)))


def return_freed_memory() -> None:
    """Gives memory that was freed back to the system; glibc keeps blocks below 32 MB for itself until told.

    A converter's many layers are such blocks, and what follows it wants larger ones, which these do not serve.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other C libraries have no such call
        if trim is not None:
            trim(0)
