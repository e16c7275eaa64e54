"""Cosine: the student's hidden states point where the teacher's point (Sanh et al. 2019, DistilBERT)."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from compressor.distill.losses.base import LossTerm, MappedLoss, Pairs
from compressor.distill.losses.hidden import StatesTerm
from compressor.distill.outputs import Shape


def cosine_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns ``1 - cos(student, teacher)``, the mean over real tokens; padding never counts.

    Args:
        student: shape (batch, tokens, width), already projected to the teacher's width.
        teacher: shape (batch, tokens, width).
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
    """
    real = mask.bool()
    return 1 - functional.cosine_similarity(student[real], teacher[real], dim=-1).mean()


class CosineLoss(MappedLoss):
    """Settings of the loss ``cosine``; by default the last layers are compared, as in DistilBERT."""

    name: Literal["cosine"] = "cosine"
    layers: Literal["all", "last"] | tuple[int, ...] = "last"

    def state_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the outputs of the mapped layers."""
        return tuple((ours + 1, theirs + 1) for ours, theirs in self.mapped(student, teacher))

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term, with one learned projection a pair where the widths differ."""
        return StatesTerm(self.state_pairs(student, teacher), student, teacher, cosine_loss)
