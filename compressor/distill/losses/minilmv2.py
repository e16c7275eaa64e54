"""MiniLMv2: query, key and value relations in any number of relation heads (Wang et al. 2021)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field

from compressor.core.errors import RecipeError
from compressor.distill.losses.base import LossSettings, LossTerm, Pairs
from compressor.distill.losses.relations import check_relations, relation, relation_kl
from compressor.distill.outputs import Outputs, Projections, Shape

Compared = Literal["query", "key", "value"]


def minilmv2_loss(
    student: Projections,
    teacher: Projections,
    mask: torch.Tensor,
    *,
    relation_heads: int,
    relations: tuple[Compared, ...] = ("query", "key", "value"),
) -> torch.Tensor:
    """Returns the divergence of the Q-Q, K-K and V-V relations, the mean of the three; padding never counts.

    Equations 4 to 8 of the paper with equal weights: the heads of each projection are joined and cut anew into
    ``relation_heads``, so that the two models' own numbers of heads, and their widths, may differ.

    Args:
        student: queries, keys and values of shape (batch, tokens, width).
        teacher: the same in the teacher's width.
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
        relation_heads: divides both widths.
        relations: which projections are compared.
    """
    losses = []
    for name in relations:
        ours, theirs = getattr(student, name), getattr(teacher, name)
        losses.append(
            relation_kl(
                relation(ours, ours, mask, heads=relation_heads),
                relation(theirs, theirs, mask, heads=relation_heads),
                mask,
            )
        )
    return torch.stack(losses).mean()


class MiniLMv2Loss(LossSettings):
    """Settings of the loss ``minilmv2``: the student's last layer follows one layer of the teacher."""

    name: Literal["minilmv2"] = "minilmv2"
    relation_heads: int | None = Field(default=None, gt=0)
    """More of them are finer; the paper takes 48 for 768 dimensions. None: as many as the teacher's layer has heads."""
    teacher_layer: int | None = Field(default=None, ge=0)
    """Zero-based; None: the last. The paper takes one some layers below the last for large teachers."""
    relations: tuple[Compared, ...] = Field(default=("query", "key", "value"), min_length=1)

    def layer_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the student's last layer and the chosen one of the teacher."""
        theirs = teacher.layers - 1 if self.teacher_layer is None else self.teacher_layer
        if theirs >= teacher.layers:
            raise RecipeError(
                f"'teacher_layer: {theirs}' of the loss 'minilmv2'; expected 0 to {teacher.layers - 1}",
                remedy="count the teacher's layers from 0",
            )
        check_relations(student, teacher)
        ours = student.layers - 1
        self._heads(student, teacher, ours, theirs)
        return ((ours, theirs),)

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term; it has no parameters."""
        ((ours, theirs),) = self.layer_pairs(student, teacher)
        return _Term(ours, theirs, self._heads(student, teacher, ours, theirs), self.relations)

    def _heads(self, student: Shape, teacher: Shape, ours: int, theirs: int) -> int:
        heads = teacher.heads[theirs] if self.relation_heads is None else self.relation_heads
        widths = student.attention_width(ours), teacher.attention_width(theirs)
        if any(width % heads for width in widths):
            most = math.gcd(*widths)
            fitting = [count for count in range(1, most + 1) if most % count == 0]
            raise RecipeError(
                f"{heads} relation heads do not divide the widths {widths[0]} (student) and {widths[1]} (teacher); "
                f"expected one of {', '.join(map(str, fitting))}",
                remedy="set 'relation_heads' of the loss 'minilmv2' to one of them",
            )
        return heads


class _Term(LossTerm):
    def __init__(self, ours: int, theirs: int, heads: int, relations: tuple[Compared, ...]) -> None:
        super().__init__()
        self.ours, self.theirs, self.heads, self.relations = ours, theirs, heads, relations

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return minilmv2_loss(
            student.projections[self.ours],
            teacher.projections[self.theirs],
            mask,
            relation_heads=self.heads,
            relations=self.relations,
        )
