"""Slow references: what the formulas say, in loops over single numbers, and random tensors to try them on."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from compressor.distill.outputs import Outputs, Projections, Shape

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
Matrix = list[list[float]]


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 1.5


def made(shape: Shape, *, seed: int, mask: torch.Tensor = MASK, labels: int = 3) -> Outputs:
    """All outputs that a model of this shape has, at random."""
    batch, tokens = mask.shape
    return Outputs(
        numbers(batch, labels, seed=seed),
        {
            state: numbers(batch, tokens, shape.hidden_size, seed=100 * seed + state)
            for state in range(shape.layers + 1)
        },
        {
            layer: Projections(
                *(
                    numbers(batch, tokens, shape.attention_width(layer), seed=1000 * seed + 3 * layer + place)
                    for place in range(3)
                )
            )
            for layer in range(len(shape.heads))
        },
    )


def softmax(row: list[float], temperature: float = 1.0) -> list[float]:
    powers = [math.exp(value / temperature) for value in row]
    return [power / sum(powers) for power in powers]


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def sentences(tensor: torch.Tensor, mask: torch.Tensor = MASK) -> Iterator[Matrix]:
    """Yields each sentence as the list of its real tokens' vectors."""
    for row, real in zip(tensor.tolist(), mask.tolist(), strict=True):
        yield [vector for vector, keep in zip(row, real, strict=True) if keep]


def relations(left: torch.Tensor, right: torch.Tensor, heads: int, mask: torch.Tensor = MASK) -> list[Matrix]:
    """Returns one matrix of scaled products for each sentence and head, real tokens only."""
    size = left.shape[-1] // heads
    return [
        [
            [sum(u[i] * v[i] for i in range(head * size, (head + 1) * size)) / math.sqrt(size) for v in second]
            for u in first
        ]
        for first, second in zip(sentences(left, mask), sentences(right, mask), strict=True)
        for head in range(heads)
    ]


def slow_kl(ours: list[Matrix], theirs: list[Matrix]) -> float:
    """The mean over heads and tokens of KL(softmax(theirs) || softmax(ours))."""
    return mean(
        [
            kl(softmax(b), softmax(a))
            for one, other in zip(ours, theirs, strict=True)
            for a, b in zip(one, other, strict=True)
        ]
    )


def slow_mse(ours: list[Matrix], theirs: list[Matrix]) -> float:
    """The mean over all numbers of the squared difference."""
    return mean(
        [
            (x - y) ** 2
            for one, other in zip(ours, theirs, strict=True)
            for a, b in zip(one, other, strict=True)
            for x, y in zip(a, b, strict=True)
        ]
    )
