"""What a training stage minimises: named losses over one batch, each with its weight."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

from compressor.core.task import Task
from compressor.train.weights import Progress, WeightAt

Inputs = dict[str, torch.Tensor]


class Objective(nn.Module, ABC):
    """A module that owns the trained model (and any loss parameters) and returns its losses by name.

    Args:
        model: what is trained.
        weights: each loss's factor in the total; a number, or a function of the run's progress.
    """

    progress: Progress = 0.0
    """Share of the run's steps that are done; the loop sets it before each step."""

    def __init__(self, model: nn.Module, weights: Mapping[str, float | WeightAt]) -> None:
        super().__init__()
        self.model = model
        self.weights = dict(weights)
        self.epoch = 0
        """Which pass over the training split this is; the loop sets it before every step."""

    @abstractmethod
    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Computes the losses of one batch.

        Args:
            inputs: the model's inputs, tensors of shape (batch, tokens).
            labels: true label indices of shape (batch,); numbers; or 0 and 1 of shape (batch, labels).
            indices: positions of the batch's sentences in the training split.

        Returns:
            Unweighted scalar losses, with the keys of ``weights``; those whose weight is 0 now are left out.
        """

    def weight_of(self, name: str) -> float:
        """Returns the weight of a loss at this moment of the run."""
        weight = self.weights[name]
        return weight(self.progress) if callable(weight) else weight

    def units(self, indices: Sequence[int], lengths: Sequence[int]) -> dict[str, float]:
        """Returns over how many things each loss of a batch is a mean, so that parts of a batch can be weighed.

        Args:
            indices: positions of the sentences in the training split.
            lengths: their numbers of tokens.

        Returns:
            With the keys of ``weights``; here the number of sentences.
        """
        return dict.fromkeys(self.weights, float(len(indices)))

    def total(self, losses: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns the weighted sum."""
        return torch.stack([self.weight_of(name) * loss for name, loss in losses.items()]).sum()


class Classification(Objective):
    """The loss of a head of logits with what is true: cross-entropy; for other tasks of such a head, theirs."""

    def __init__(self, model: nn.Module, task: Task = "text-classification") -> None:
        super().__init__(model, {"labels": 1.0})
        self._loss = _LOSSES[task]

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns the loss under the name ``labels``."""
        return {"labels": self._loss(self.model(**inputs).logits.float(), labels)}


def _squared_error(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(logits[:, 0], labels)


_LOSSES: Mapping[Task, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "text-classification": functional.cross_entropy,
    "multi-label-classification": functional.binary_cross_entropy_with_logits,
    "regression": _squared_error,
}
