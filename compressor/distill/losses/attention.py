"""Attention: the student looks where the teacher looks (Jiao et al. 2020, equation 7)."""

from __future__ import annotations

from typing import Literal

import torch

from compressor.distill.losses.base import LossTerm, MappedLoss, Pairs
from compressor.distill.losses.relations import USE_RELATIONS, check_scores, relation, relation_kl, relation_mse
from compressor.distill.outputs import Outputs, Projections, Shape

Kind = Literal["mse", "kl"]


def attention_loss(
    student: Projections, teacher: Projections, mask: torch.Tensor, *, heads: int, kind: Kind = "mse"
) -> torch.Tensor:
    """Returns how far one layer's attention is from the teacher's; padding never counts.

    ``mse`` is the mean squared difference of the scores before the softmax, as in TinyBERT; ``kl`` the divergence of
    the distributions after it, as in MobileBERT and MiniLM.

    Args:
        student: queries and keys of shape (batch, tokens, width).
        teacher: the same; the width may differ, the number of heads may not.
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
        heads: attention heads of either.
        kind: what is compared.
    """
    ours = relation(student.query, student.key, mask, heads=heads)
    theirs = relation(teacher.query, teacher.key, mask, heads=heads)
    return (relation_mse if kind == "mse" else relation_kl)(ours, theirs, mask)


class AttentionLoss(MappedLoss):
    """Settings of the loss ``attention``."""

    name: Literal["attention"] = "attention"
    kind: Kind = "mse"

    @property
    def per(self) -> Literal["token", "pair"]:
        """``mse`` is a mean over pairs of tokens, ``kl`` over tokens."""
        return "pair" if self.kind == "mse" else "token"

    def layer_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the mapped layers, whose numbers of heads agree."""
        pairs = self.mapped(student, teacher)
        check_scores(self.name, pairs, student, teacher, remedy=USE_RELATIONS)
        return pairs

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term; it has no parameters."""
        return _Term(self.layer_pairs(student, teacher), student.heads, self.kind)


class _Term(LossTerm):
    def __init__(self, pairs: Pairs, heads: tuple[int, ...], kind: Kind) -> None:
        super().__init__()
        self.pairs, self.heads, self.kind = pairs, heads, kind

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = [
            attention_loss(
                student.projections[ours], teacher.projections[theirs], mask, heads=self.heads[ours], kind=self.kind
            )
            for ours, theirs in self.pairs
        ]
        return torch.stack(losses).mean()
