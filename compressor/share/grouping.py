"""Which layers share one set of weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from torch import nn

from compressor.core.errors import RecipeError
from compressor.shapes import LayerShape

Groups = tuple[int, ...]
"""For each depth the number of its group, numbered in order of first use."""


def contiguous(depth: int, count: int) -> Groups:
    """Returns ``count`` runs of neighbouring layers, as ALBERT cuts them: depth i belongs to group i * count // depth.

    Raises:
        RecipeError: more groups than layers.
    """
    if not 0 < count <= depth:
        raise RecipeError(
            f"groups: {count} does not fit {depth} layers; expected 1 to {depth}", remedy="name fewer groups"
        )
    return tuple(index * count // depth for index in range(depth))


def named(depth: int, lists: Sequence[Sequence[int]]) -> Groups:
    """Returns groups that are listed by their layers.

    Raises:
        RecipeError: a layer that is in no group, in two, or not there.
    """
    if sorted(layer for group in lists for layer in group) != [*range(depth)]:
        raise RecipeError(
            f"groups: {[list(group) for group in lists]} is no division of {depth} layers; "
            f"expected each layer from 0 to {depth - 1} once",
            remedy="list every layer in exactly one group",
        )
    return _renumbered([next(n for n, group in enumerate(lists) if layer in group) for layer in range(depth)])


def by_similarity(layers: Sequence[nn.Module], count: int) -> Groups:
    """Returns ``count`` groups of layers whose weights point the same way (average linkage on 1 - cosine).

    Each matrix counts alike, whatever its size or norm.

    Raises:
        RecipeError: more groups than layers.
    """
    contiguous(len(layers), count)
    if count == len(layers):
        return tuple(range(len(layers)))
    distances = distances_of(layers)
    pairs = distances[np.triu_indices(len(layers), 1)]
    return _renumbered(fcluster(linkage(pairs, method="average"), count, criterion="maxclust").tolist())


def distances_of(layers: Sequence[nn.Module]) -> np.ndarray:
    """Returns 1 - mean cosine of the layers' weight matrices, shape (layers, layers)."""
    total = np.zeros((len(layers), len(layers)))
    matrices = [[it.detach() for it in layer.parameters() if it.dim() == 2] for layer in layers]
    for same in zip(*matrices, strict=True):
        flat = torch.stack([nn.functional.normalize(it.flatten().double(), dim=0) for it in same])
        total += (flat @ flat.T).numpy()
    return np.clip(1 - total / len(matrices[0]), 0, 2)  # rounding leaves tiny negative distances


def check_alike(groups: Groups, shapes: Sequence[LayerShape]) -> None:
    """Refuses groups of layers that differ in shape.

    Args:
        groups: of each depth.
        shapes: of each depth.

    Raises:
        RecipeError: a group holds layers of different widths.
    """
    for group in set(groups):
        members = [index for index, it in enumerate(groups) if it == group]
        odd = next((index for index in members if shapes[index] != shapes[members[0]]), None)
        if odd is not None:
            first, other = shapes[members[0]], shapes[odd]
            raise RecipeError(
                f"layers {members[0]} and {odd} cannot share weights: one has {first.heads} heads and "
                f"{list(first.ffn)} neurons, the other {other.heads} and {list(other.ffn)}",
                remedy="prune with uniform: true before sharing, or share before pruning",
            )


def _renumbered(labels: Sequence[int]) -> Groups:
    order = list(dict.fromkeys(labels))
    return tuple(order.index(label) for label in labels)
