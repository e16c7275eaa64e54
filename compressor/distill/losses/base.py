"""What every distillation loss offers: settings, what it asks of the two models, and a term to minimise."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from pydantic import Field
from torch import nn

from compressor.distill.outputs import Outputs, Shape
from compressor.stage import StageConfig


class LossTerm(nn.Module, ABC):
    """A loss over one batch; a module because it may own parameters (a projection) that train with the student."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs, mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Returns a scalar.

        Args:
            student: outputs with gradient.
            teacher: outputs without.
            mask: 1 for a token, 0 for padding; shape (batch, tokens).
            labels: true label indices, shape (batch,).
        """


class LossSettings(StageConfig):
    """Base of a loss's settings; subclasses add a literal ``name``."""

    weight: float = Field(default=1.0, gt=0)
    """Factor in the total."""

    def state_pairs(self, student: Shape, teacher: Shape) -> tuple[tuple[int, int], ...]:
        """Returns the (student, teacher) hidden states that the loss compares; see :class:`Outputs` for their numbers.

        Raises:
            RecipeError: a layer map that does not fit the two depths.
        """
        return ()

    @abstractmethod
    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term for a pair of models."""
