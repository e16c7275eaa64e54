"""Hidden states: the student's inner representation follows the teacher's (Jiao et al. 2020, equations 8 and 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch

from compressor.distill.losses.base import LossTerm, MappedLoss, Pairs, projections
from compressor.distill.outputs import Outputs, Shape

StateLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean squared difference of two hidden states over real tokens; padding never counts.

    Args:
        student: shape (batch, tokens, width), already projected to the teacher's width.
        teacher: shape (batch, tokens, width).
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
    """
    # Selecting before subtracting keeps a NaN in a padded position out of the sum; multiplying by zero would not.
    real = mask.bool()
    return (student[real] - teacher[real]).square().mean()


class HiddenLoss(MappedLoss):
    """Settings of the loss ``hidden``: the embeddings' output and the output of every student layer."""

    name: Literal["hidden"] = "hidden"
    embeddings: bool = True
    """Compare the embeddings' output too; False leaves it to the loss ``embeddings``, or out."""

    def state_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns (0, 0) for the embeddings, then the pairs of layers."""
        pairs = tuple((ours + 1, theirs + 1) for ours, theirs in self.mapped(student, teacher))
        return ((0, 0), *pairs) if self.embeddings else pairs

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term, with one learned projection a pair where the widths differ."""
        return StatesTerm(self.state_pairs(student, teacher), student, teacher)


class StatesTerm(LossTerm):
    """The mean of a loss over pairs of hidden states, each with its learned projection.

    Args:
        pairs: (student's, teacher's) states.
        student: the student's shape.
        teacher: the teacher's.
        loss: compares two states of shape (batch, tokens, teacher's width) under a mask.
    """

    def __init__(self, pairs: Pairs, student: Shape, teacher: Shape, loss: StateLoss = hidden_loss) -> None:
        super().__init__()
        self.pairs, self.loss = pairs, loss
        self.projections = projections(len(pairs), student, teacher)

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns the mean, not the sum, so that a weight means the same for every depth."""
        padding = ~mask.bool()[:, :, None]
        losses = []
        for (ours, theirs), projection in zip(self.pairs, self.projections, strict=True):
            # Filled before it is projected: a NaN in a padded position must not reach the projection's gradient.
            projected = projection(student.hidden_states[ours].masked_fill(padding, 0))
            losses.append(self.loss(projected, teacher.hidden_states[theirs], mask))
        return torch.stack(losses).mean()
