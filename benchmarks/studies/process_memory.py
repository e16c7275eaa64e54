"""The most memory a process ever held."""

from __future__ import annotations

import resource


def peak_bytes() -> int:
    """Returns the largest resident size of this process so far, in bytes (``getrusage`` counts in KiB on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
