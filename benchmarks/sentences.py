"""Which sentence each timed run takes: the user's own mix of lengths, in a seeded random order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compressor.core.errors import UsageError
from compressor.core.schema import Text


def sample(texts: Sequence[Text], count: int, *, seed: int) -> tuple[int, ...]:
    """Draws ``count`` texts whose lengths are distributed as those of all ``texts``.

    Systematic sampling from the texts in order of length: every slice of the length distribution gives its share, so
    that a small sample has the quantiles of the whole. Each text has the same chance to be drawn; with ``count`` above
    the number of texts, every text is drawn equally often, give or take one.

    Returns:
        Indices into ``texts``, in random order.

    Raises:
        UsageError: there are no texts, or ``count`` is below 1.
    """
    if not texts or count < 1:
        raise UsageError(
            f"{len(texts)} sentences for {count} runs; expected at least one of each",
            remedy="name a file with sentences (--sentences) and a positive --runs",
        )
    random = np.random.default_rng(seed)
    whole, rest = divmod(count, len(texts))
    drawn = [np.tile(np.arange(len(texts)), whole)]
    if rest:
        lengths = np.array([_characters(text) for text in texts])
        by_length = np.lexsort((random.permutation(len(texts)), lengths))
        positions = (np.arange(rest) + random.random()) * len(texts) / rest
        drawn.append(by_length[np.minimum(positions.astype(int), len(texts) - 1)])
    order = random.permutation(np.concatenate(drawn))
    return tuple(int(index) for index in order)


def split(order: Sequence[int], parts: int) -> list[tuple[int, ...]]:
    """Splits an order into ``parts`` consecutive pieces of nearly equal size; fewer for a short order, none empty."""
    pieces = np.array_split(np.asarray(order, dtype=int), max(1, min(parts, len(order))))
    return [tuple(int(index) for index in piece) for piece in pieces]


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))
