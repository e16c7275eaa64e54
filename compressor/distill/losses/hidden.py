"""Hidden states: the student's inner representation follows the teacher's (Jiao et al. 2020, equations 8 and 9)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn

from compressor.distill.layer_map import LayerMap, resolve_pairs
from compressor.distill.losses.base import LossSettings, LossTerm
from compressor.distill.outputs import Outputs, Shape


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean squared difference of two hidden states over real tokens; padding never counts.

    Args:
        student: shape (batch, tokens, width), already projected to the teacher's width.
        teacher: shape (batch, tokens, width).
        mask: 1 for a token, 0 for padding; shape (batch, tokens).
    """
    # Selecting before subtracting keeps a NaN in a padded position out of the sum; multiplying by zero would not.
    real = mask.bool()
    return (student[real].float() - teacher[real].float()).square().mean()


class HiddenLoss(LossSettings):
    """Settings of the loss ``hidden``: the embeddings' output and the output of every student layer."""

    name: Literal["hidden"] = "hidden"
    map: LayerMap = "uniform"
    """The teacher layer that each student layer follows."""

    def state_pairs(self, student: Shape, teacher: Shape) -> tuple[tuple[int, int], ...]:
        """Returns (0, 0) for the embeddings, then the pairs of layers."""
        pairs = resolve_pairs(self.map, student_layers=student.layers, teacher_layers=teacher.layers)
        return ((0, 0), *((ours + 1, theirs + 1) for ours, theirs in pairs))

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term, with one learned projection a pair where the widths differ."""
        return _Term(self.state_pairs(student, teacher), student.hidden_size, teacher.hidden_size)


class _Term(LossTerm):
    def __init__(self, pairs: tuple[tuple[int, int], ...], student_width: int, teacher_width: int) -> None:
        super().__init__()
        self.pairs = pairs
        same = student_width == teacher_width
        self.projections = nn.ModuleList(
            nn.Identity() if same else nn.Linear(student_width, teacher_width, bias=False) for _ in pairs
        )

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        losses = [
            hidden_loss(projection(student.hidden_states[ours]), teacher.hidden_states[theirs], mask)
            for (ours, theirs), projection in zip(self.pairs, self.projections, strict=True)
        ]
        # The mean, not the sum, so that a weight means the same for every depth.
        return torch.stack(losses).mean()
