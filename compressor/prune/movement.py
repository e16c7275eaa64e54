"""Movement pruning: which weights become zero is learnt in training, by where training moves them.

Sanh, Wolf and Rush 2020, "Movement Pruning: Adaptive Sparsity by Fine-Tuning", hard movement (top-v): a weight's score
is a parameter, its mask is 1 while the score is among the highest, and the gradient passes the mask straight through,
``∂L/∂S = ∂L/∂W' · W``. A weight that training moves towards zero loses score, however large it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn
from torch.nn.utils import parametrize

from compressor.distill.losses.logits import logits_loss
from compressor.prune.masks import Granularity, masks_for
from compressor.train.objective import Classification, Inputs
from compressor.train.settings import TrainSettings


class MovementSettings(TrainSettings):
    """How masks are learnt. Scores train at ``lr`` too: they start at zero and only their order counts, so a rate of
    their own would change nothing under Adam."""

    prune_from: float = Field(default=0.1, ge=0, lt=1)
    """Share of all steps before the first weight goes: scores start equal and have to differ first."""
    prune_until: float = Field(default=0.7, gt=0, le=1)
    """Share of all steps after which the full share is reached; the rest trains what is left."""
    mask_steps: int = Field(default=8, gt=0)
    """Steps between two looks at the scores."""
    teacher: str | None = None
    """Id of a stage whose checkpoint teaches; its soft answers are then learnt beside the labels."""
    teacher_weight: float = Field(default=1.0, gt=0)
    temperature: float = Field(default=2.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.prune_from >= self.prune_until:
            raise ValueError("prune_from has to be before prune_until")
        return self

    def share_at(self, step: int, total: int) -> float:
        """Returns how much of the final sparsity a step has: 0 at first, then cubic to 1 (Zhu and Gupta 2017)."""
        start, end = self.prune_from * total, self.prune_until * total
        return 1 - (1 - min(1.0, max(0.0, (step - start) / (end - start)))) ** 3


class LearntMasks:
    """Gives modules learnable masks; use :meth:`before_step` in training and :meth:`settle` after it.

    Args:
        modules: linear modules by name; their ``weight`` is the masked one from here on.
        pattern: see :func:`compressor.prune.masks.check_pattern`. Of N:M, fewer than M - N go until the full share.
        ratio: final share of zeros.
        granularity: one ranking over all modules, or one in each.
        settings: when how much goes.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Linear],
        *,
        pattern: str,
        ratio: float,
        granularity: Granularity,
        settings: MovementSettings,
    ) -> None:
        self._modules = modules
        self._masks = {name: _Mask(module.weight) for name, module in modules.items()}
        for name, module in modules.items():
            parametrize.register_parametrization(module, "weight", self._masks[name])
        self._pattern, self._ratio, self._granularity, self._settings = pattern, ratio, granularity, settings

    def before_step(self, step: int, total: int) -> None:
        """Looks at the scores where it is time to, and masks as much as the schedule says."""
        if step % self._settings.mask_steps == 0:
            self._mask(self._settings.share_at(step, total))

    def settle(self) -> dict[str, torch.Tensor]:
        """Makes the zeros part of the weights and takes the scores away; returns which weights stayed, by name."""
        self._mask(1.0)
        for module in self._modules.values():
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
        return {name: mask.mask for name, mask in self._masks.items()}

    def _mask(self, share: float) -> None:
        if share == 0:
            return
        scores = {name: mask.scores.detach() for name, mask in self._masks.items()}
        pattern = _partial(self._pattern, share)
        found = masks_for(scores, pattern=pattern, ratio=share * self._ratio, granularity=self._granularity)
        for name, mask in found.items():
            self._masks[name].mask.copy_(mask)


class TaughtClassification(Classification):
    """A classifier's loss on the labels and, under the name ``logits``, on a teacher's soft answers.

    Args:
        model: the model that learns.
        teacher: the teacher's logits on the training split, shape (examples, labels).
        weight: of the teacher's answers.
        temperature: see :func:`compressor.distill.losses.logits.logits_loss`.
    """

    def __init__(self, model: nn.Module, teacher: np.ndarray, *, weight: float, temperature: float) -> None:
        super().__init__(model)
        self.weights["logits"] = weight
        self._teacher, self._temperature = teacher, temperature

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns both losses."""
        logits = self.model(**inputs).logits.float()
        teacher = torch.from_numpy(self._teacher[list(indices)]).to(logits.device)
        taught = logits_loss(logits, teacher, temperature=self._temperature)
        return {"labels": self._loss(logits, labels), "logits": taught}


class _Mask(nn.Module):
    """A weight's scores and the mask in force; both are in the model's state, so that training can resume."""

    mask: torch.Tensor

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros_like(weight))
        self.register_buffer("mask", torch.ones_like(weight, dtype=torch.bool))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        # The value is the mask's, the gradient the scores': the straight-through estimator.
        return weight * (self.mask + (self.scores - self.scores.detach()))


def _partial(pattern: str, share: float) -> str:
    """Returns an N:M pattern on its way from nothing to N:M; other patterns change by their ratio."""
    found = re.fullmatch(r"(\d+):(\d+)", pattern)
    if found is None:
        return pattern
    kept, of = int(found[1]), int(found[2])
    return f"{of - int(share * (of - kept))}:{of}"
