"""Soft targets: the teacher's answer, as a distribution over labels or as plain numbers."""

from __future__ import annotations

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
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
    log_student = functional.log_softmax(student / temperature, dim=-1)
    log_teacher = functional.log_softmax(teacher / temperature, dim=-1)
    return functional.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True) * temperature**2


def logits_mse_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Returns the mean squared difference of logits (batch, labels), the limit of high temperatures (Ba, Caruana 2014).

    It also matches the logits' mean, which a distribution does not show.
    """
    return functional.mse_loss(student, teacher)


class LogitsLoss(LossSettings):
    """Settings of the loss ``logits``."""

    name: Literal["logits"] = "logits"
    kind: Literal["kl", "mse"] = "kl"
    temperature: float = Field(default=2.0, gt=0)
    """For ``kl``."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kind == "mse" and "temperature" in self.model_fields_set:
            raise ValueError("'temperature' softens distributions; 'kind: mse' compares the logits themselves")
        return self

    @property
    def per(self) -> Literal["sentence"]:
        """The mean is over sentences."""
        return "sentence"

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term; it has no parameters."""
        return _Term(None if self.kind == "mse" else self.temperature)


class _Term(LossTerm):
    def __init__(self, temperature: float | None) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.temperature is None:
            return logits_mse_loss(student.logits, teacher.logits)
        return logits_loss(student.logits, teacher.logits, temperature=self.temperature)
