"""Choosing some of many without favouring a part: files are often sorted by label."""

from __future__ import annotations


def spread(total: int, count: int) -> list[int]:
    """Returns up to ``count`` indices below ``total``, ascending, at even distances from the first on."""
    kept = min(total, count)
    return [index * total // kept for index in range(kept)]
