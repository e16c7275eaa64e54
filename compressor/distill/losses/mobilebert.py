"""MobileBERT: feature maps and attentions of chosen layers, jointly or one layer at a time (Sun et al. 2020)."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch.nn import functional

from compressor.distill.losses.attention import attention_loss
from compressor.distill.losses.base import LossTerm, MappedLoss, Pairs, projections
from compressor.distill.losses.relations import check_scores
from compressor.distill.outputs import Outputs, Shape


class FeatureMaps(NamedTuple):
    """The three parts of :func:`feature_map_loss`, scalars."""

    normalized: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor


def feature_map_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> FeatureMaps:
    """Returns how far two feature maps are apart: in direction, in mean and in variance; padding never counts.

    Section 3.4 of the paper splits its equation 3 into the discrepancy of the normalised maps and that of their
    statistics: the mean squared difference after a normalisation over the width (without scale and shift), the squared
    difference of the means and, as in the authors' training, the absolute difference of the variances; each the mean
    over real tokens.

    Args:
        student: shape (batch, tokens, width).
        teacher: shape (batch, tokens, width).
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
    """
    real = mask.bool()
    ours, theirs = student[real], teacher[real]
    width = student.shape[-1:]
    return FeatureMaps(
        normalized=functional.mse_loss(functional.layer_norm(ours, width), functional.layer_norm(theirs, width)),
        mean=functional.mse_loss(ours.mean(dim=-1), theirs.mean(dim=-1)),
        variance=functional.l1_loss(ours.var(dim=-1, correction=0), theirs.var(dim=-1, correction=0)),
    )


class MobileBERTLoss(MappedLoss):
    """Settings of the loss ``mobilebert``; ``layers`` restricts it, for progressive transfer.

    The factors are those of the authors' training. A map wider or thinner than the teacher's is projected first, which
    the paper's models of one width do not need.
    """

    name: Literal["mobilebert"] = "mobilebert"
    feature: float = Field(default=100.0, ge=0)
    """Factor of the normalised maps' difference."""
    mean: float = Field(default=5000.0, ge=0)
    """Factor of the means' difference."""
    variance: float = Field(default=5.0, ge=0)
    """Factor of the variances' difference."""
    attention: float = Field(default=1.0, ge=0)
    """Factor of the attentions' divergence; 0 leaves them out, for models with unequal numbers of heads."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not any((self.feature, self.mean, self.variance, self.attention)):
            raise ValueError("all factors of 'mobilebert' are 0: leave the loss out")
        return self

    def state_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the outputs of the mapped layers."""
        return tuple((ours + 1, theirs + 1) for ours, theirs in self.mapped(student, teacher))

    def layer_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the mapped layers, whose numbers of heads agree; none without attention transfer."""
        if self.attention == 0:
            return ()
        pairs = self.mapped(student, teacher)
        check_scores(
            self.name, pairs, student, teacher, remedy="set its 'attention: 0' and add 'minilmv2' for the attentions"
        )
        return pairs

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term, with one learned projection a pair where the widths differ."""
        return _Term(self, student, teacher)


class _Term(LossTerm):
    def __init__(self, settings: MobileBERTLoss, student: Shape, teacher: Shape) -> None:
        super().__init__()
        self.settings, self.heads = settings, student.heads
        self.states, self.layers = settings.state_pairs(student, teacher), settings.layer_pairs(student, teacher)
        self.projections = projections(len(self.states), student, teacher)

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        factors = self.settings
        padding = ~mask.bool()[:, :, None]
        losses = []
        for (ours, theirs), projection in zip(self.states, self.projections, strict=True):
            projected = projection(student.hidden_states[ours].masked_fill(padding, 0))
            parts = feature_map_loss(projected, teacher.hidden_states[theirs], mask)
            losses.append(
                factors.feature * parts.normalized + factors.mean * parts.mean + factors.variance * parts.variance
            )
        attentions = [
            attention_loss(
                student.projections[ours], teacher.projections[theirs], mask, heads=self.heads[ours], kind="kl"
            )
            for ours, theirs in self.layers
        ]
        total = torch.stack(losses).mean()
        return total + factors.attention * torch.stack(attentions).mean() if attentions else total
