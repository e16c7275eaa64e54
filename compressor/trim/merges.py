"""Byte pair encoding: which merges build a piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Pair = tuple[str, str]


class MergeTable:
    """The merges of a BPE tokenizer, in order of rank.

    A piece that stands in a tokenised word was built by the merges that build it alone: merges across its borders did
    not happen, and within it the order of ranks is the same. So the merges of the kept pieces are all that kept text
    needs, and whatever pair wins today still wins when others are gone.

    Args:
        merges: as ``tokenizer.json`` holds them, ``"a b"`` or ``["a", "b"]``.
        ids: piece to id.
    """

    def __init__(self, merges: Sequence[Any], ids: Mapping[str, int]) -> None:
        self._written = list(merges)
        pairs = (tuple(item.split(" ", 1)) if isinstance(item, str) else tuple(item) for item in merges)
        self._ranks: dict[Pair, int] = {(left, right): rank for rank, (left, right) in enumerate(pairs)}
        self._ids = ids

    def parts(self, piece: str) -> tuple[int, ...]:
        """Returns ids of everything that exists on the way from single characters to ``piece``."""
        return tuple(self._ids[part] for part in self._built(piece)[0] if part in self._ids)

    def kept(self, pieces: Mapping[str, int]) -> list[Any]:
        """Returns the merges, as they were written, that build the given pieces."""
        used = {rank for piece in pieces for rank in self._built(piece)[1]}
        return [self._written[rank] for rank in sorted(used)]

    def _built(self, piece: str) -> tuple[set[str], set[int]]:
        """Returns all symbols and all ranks of merges on the way to a piece; none where merging does not lead to it."""
        symbols = list(piece)
        seen, ranks = {*symbols}, set()
        while len(symbols) > 1:
            rank, place = min(
                (self._ranks.get((left, right), len(self._ranks)), place)
                for place, (left, right) in enumerate(pairwise(symbols))
            )
            if rank == len(self._ranks):
                return set(), set()
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
            seen.add(symbols[place])
            ranks.add(rank)
        return seen, ranks
