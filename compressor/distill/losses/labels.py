"""Hard targets: the true labels, as in plain training."""

from __future__ import annotations

from typing import Literal

import torch
from torch.nn import functional

from compressor.distill.losses.base import LossSettings, LossTerm
from compressor.distill.outputs import Outputs, Shape


def labels_loss(student: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Returns the cross-entropy of logits (batch, labels) with true label indices (batch,), the mean over the batch."""
    return functional.cross_entropy(student, labels)


class LabelsLoss(LossSettings):
    """Settings of the loss ``labels``."""

    name: Literal["labels"] = "labels"

    @property
    def per(self) -> Literal["sentence"]:
        """The mean is over sentences."""
        return "sentence"

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term; it has no parameters."""
        return _Term()


class _Term(LossTerm):
    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return labels_loss(student.logits, labels)
