"""How many heads and neurons each layer keeps, and which: by one ranking over all layers, or the same in each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compressor.core.errors import RecipeError
from compressor.shapes import LayerShape, Shape

Scores = Sequence[np.ndarray]
"""One array of importances a layer (or network), larger is more important."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """What is kept, ascending indices for each stored layer."""

    heads: tuple[tuple[int, ...], ...]
    ffn: tuple[tuple[tuple[int, ...], ...], ...]
    """For each layer, for each of its feed-forward networks."""

    def shape(self, before: Shape) -> Shape:
        """Returns the shape of a model that was pruned so."""
        layers = tuple(
            LayerShape(heads=len(heads), ffn=tuple(map(len, networks)))
            for heads, networks in zip(self.heads, self.ffn, strict=True)
        )
        return before.model_copy(update={"layers": layers})


def no_scores(shape: Shape) -> tuple[Scores, Scores]:
    """Returns equal importances for the heads and neurons of a shape: an allocation as even as can be."""
    heads = [np.zeros(layer.heads) for layer in shape.layers]
    return heads, [np.zeros(width) for layer in shape.layers for width in layer.ffn]


def allocate(
    shape: Shape, heads: Scores, neurons: Scores, *, head_ratio: float, ffn_ratio: float, multiple: int, uniform: bool
) -> Allocation:
    """Decides what stays.

    Args:
        shape: of the model.
        heads: importances of each stored layer's heads.
        neurons: importances of each feed-forward network's neurons, layer after layer.
        head_ratio: share of all heads to remove.
        ffn_ratio: share of all neurons to remove.
        multiple: every network that is pruned keeps a multiple of this many neurons.
        uniform: the same number in every layer, instead of the best of one ranking over all.

    Raises:
        RecipeError: a layer would be left without heads, or without the fewest neurons that ``multiple`` allows.
    """
    kept_heads = keep(heads, ratio=head_ratio, multiple=1, uniform=uniform, what="heads")
    flat = keep(neurons, ratio=ffn_ratio, multiple=multiple, uniform=uniform, what="neurons")
    counts = iter(flat)
    return Allocation(heads=kept_heads, ffn=tuple(tuple(next(counts) for _ in layer.ffn) for layer in shape.layers))


def keep(scores: Scores, *, ratio: float, multiple: int, uniform: bool, what: str) -> tuple[tuple[int, ...], ...]:
    """Returns the kept indices of each layer, ascending.

    Units are taken in blocks of ``multiple``, formed in each layer from its most important unit down; a block's
    importance is its mean. How many stay in all depends on the ratio alone, never on the importances, so the number of
    parameters is known beforehand. Each layer's best block stays.
    """
    if ratio == 0:
        return tuple(tuple(range(len(layer))) for layer in scores)
    orders = [np.argsort(-layer, kind="stable") for layer in scores]
    blocks = [len(layer) // multiple for layer in scores]
    total = sum(map(len, scores))
    wanted = _nearest((1 - ratio) * total / multiple)
    if uniform:
        each = [_nearest((1 - ratio) * len(layer) / multiple) for layer in scores]
    else:
        each = _ranked(scores, orders, blocks, min(wanted, sum(blocks)), multiple)
    if not all(blocks) or wanted < len(scores) or min(each) < 1:
        raise RecipeError(
            f"removing {ratio:.0%} of {total} {what} leaves a layer without {what}"
            + (f" (they go in blocks of {multiple})" if multiple > 1 else ""),
            remedy=f"remove less: at least {len(scores) * multiple} {what} have to stay, {multiple} in each layer",
        )
    return tuple(
        tuple(sorted(int(unit) for unit in order[: count * multiple]))
        for order, count in zip(orders, map(min, each, blocks), strict=True)
    )


def _nearest(value: float) -> int:
    """Rounds half up, with a margin for what floating point does to a ratio."""
    return math.floor(value + 0.5 + 1e-9)


def _ranked(
    scores: Scores, orders: Sequence[np.ndarray], blocks: Sequence[int], wanted: int, multiple: int
) -> list[int]:
    """Returns how many blocks each layer keeps; ties go to the earlier block, then to the earlier layer."""
    ranking = sorted(
        (-float(layer[order[block * multiple : (block + 1) * multiple]].mean()) if block else -np.inf, block, index)
        for index, (layer, order, count) in enumerate(zip(scores, orders, blocks, strict=True))
        for block in range(count)
    )
    each = [0] * len(scores)
    for _, _, index in ranking[:wanted]:
        each[index] += 1
    return each
