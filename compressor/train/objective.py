"""What a training stage minimises: named losses over one batch, each with its weight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

Inputs = dict[str, torch.Tensor]


class Objective(nn.Module, ABC):
    """A module that owns the trained model (and any loss parameters) and returns its losses by name."""

    def __init__(self, model: nn.Module, weights: Mapping[str, float]) -> None:
        super().__init__()
        self.model = model
        self.weights = dict(weights)

    @abstractmethod
    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Computes the losses of one batch.

        Args:
            inputs: the model's inputs, tensors of shape (batch, tokens).
            labels: true label indices of shape (batch,).
            indices: positions of the batch's sentences in the training split.

        Returns:
            Unweighted scalar losses, with the keys of ``weights``.
        """

    def total(self, losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the weighted sum."""
        return torch.stack([self.weights[name] * loss for name, loss in losses.items()]).sum()


class Classification(Objective):
    """Cross-entropy with the true labels."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, {"labels": 1.0})

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns the cross-entropy under the name ``labels``."""
        return {"labels": functional.cross_entropy(self.model(**inputs).logits.float(), labels)}
