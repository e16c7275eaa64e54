"""Soft targets: the teacher's distribution over labels at a raised temperature (Hinton et al. 2015)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch.nn import functional

from compressor.distill.losses.base import LossSettings, LossTerm
from compressor.distill.outputs import Outputs, Shape


def logits_loss(student: torch.Tensor, teacher: torch.Tensor, *, temperature: float) -> torch.Tensor:
    """Returns ``T² · KL(softmax(teacher / T) ‖ softmax(student / T))``, the mean over the batch.

    The factor ``T²`` keeps the gradient's size independent of the temperature (Hinton et al. 2015, section 2).

    Args:
        student: logits of shape (batch, labels).
        teacher: logits of the same shape.
        temperature: softens both distributions; 1 leaves them as they are.
    """
    log_student = functional.log_softmax(student.float() / temperature, dim=-1)
    log_teacher = functional.log_softmax(teacher.float() / temperature, dim=-1)
    return functional.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


class LogitsLoss(LossSettings):
    """Settings of the loss ``logits``."""

    name: Literal["logits"] = "logits"
    temperature: float = Field(default=2.0, gt=0)

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term; it has no parameters."""
        return _Term(self.temperature)


class _Term(LossTerm):
    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return logits_loss(student.logits, teacher.logits, temperature=self.temperature)
