"""Length buckets chosen from a user's own sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

BUCKETS = 4
STEP = 8
"""Buckets end at multiples of it: what tensor cores and vector units work in."""


def buckets_for(lengths: Sequence[int], *, max_tokens: int, count: int = BUCKETS) -> tuple[int, ...]:
    """Returns at most ``count`` buckets that leave the least padding over all sentences together.

    The rule: candidates are the multiples of STEP; the last bucket holds the longest sentence; among all choices of
    ``count`` ends the one with the smallest sum of bucket lengths over the sentences is taken, by dynamic programming
    over the histogram of lengths. Fewer buckets are returned where more would save nothing.

    Args:
        lengths: tokens of each sentence, special tokens included.
        max_tokens: the most the model takes; longer sentences count as that long.
        count: the most buckets.
    """
    sentences: Counter[int] = Counter(min(max_tokens, -(-min(length, max_tokens) // STEP) * STEP) for length in lengths)
    ends = sorted(sentences)
    if not ends:
        return (max_tokens,)
    waste: dict[int, tuple[int, tuple[int, ...]]] = {-1: (0, ())}
    best: tuple[int, tuple[int, ...]] | None = None
    for _ in range(min(count, len(ends))):
        waste = {
            last: min(
                (tokens + ends[last] * sum(sentences[end] for end in ends[first + 1 : last + 1]), (*chosen, ends[last]))
                for first, (tokens, chosen) in waste.items()
                if first < last
            )
            for last in range(len(ends))
            if any(first < last for first in waste)
        }
        found = waste.get(len(ends) - 1)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return best[1] if best is not None else (max_tokens,)
