"""MiniLM: the last layer's attention and value relation, whatever the two depths and widths (Wang et al. 2020)."""

from __future__ import annotations

from typing import Literal

import torch

from compressor.distill.losses.base import LossSettings, LossTerm, Pairs
from compressor.distill.losses.relations import USE_RELATIONS, check_scores, relation, relation_kl
from compressor.distill.outputs import Outputs, Projections, Shape


def minilm_loss(student: Projections, teacher: Projections, mask: torch.Tensor, *, heads: int) -> torch.Tensor:
    """Returns the divergence of the attentions plus that of the value relations; padding never counts.

    Equations 4, 5 and 6 of the paper, each the mean over heads and real tokens.

    Args:
        student: queries, keys and values of the student's last layer, shape (batch, tokens, width).
        teacher: those of the teacher's; the width may differ, the number of heads may not.
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
        heads: attention heads of either.
    """
    losses = [
        relation_kl(
            relation(ours[0], ours[1], mask, heads=heads), relation(theirs[0], theirs[1], mask, heads=heads), mask
        )
        for ours, theirs in (
            ((student.query, student.key), (teacher.query, teacher.key)),
            ((student.value, student.value), (teacher.value, teacher.value)),
        )
    ]
    return torch.stack(losses).sum()


class MiniLMLoss(LossSettings):
    """Settings of the loss ``minilm``."""

    name: Literal["minilm"] = "minilm"

    def layer_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the last layers, whose numbers of heads agree."""
        pairs = ((student.layers - 1, teacher.layers - 1),)
        check_scores(self.name, pairs, student, teacher, remedy=USE_RELATIONS)
        return pairs

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term; it has no parameters."""
        ((ours, theirs),) = self.layer_pairs(student, teacher)
        return _Term(ours, theirs, student.heads[ours])


class _Term(LossTerm):
    def __init__(self, ours: int, theirs: int, heads: int) -> None:
        super().__init__()
        self.ours, self.theirs, self.heads = ours, theirs, heads

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return minilm_loss(student.projections[self.ours], teacher.projections[self.theirs], mask, heads=self.heads)
