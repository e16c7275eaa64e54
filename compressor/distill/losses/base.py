"""What every distillation loss offers: settings, what it asks of the two models, and a term to minimise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import nn

from compressor.core.errors import RecipeError
from compressor.distill.layer_map import LayerMap, resolve_pairs
from compressor.distill.outputs import Needs, Outputs, Shape
from compressor.train.weights import Scheduled, check_covered

Pairs = tuple[tuple[int, int], ...]
"""(student's number, teacher's number) of what is compared."""


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


class LossSettings(Scheduled):
    """Base of a loss's settings; subclasses give ``name`` a literal type."""

    name: str
    id: str | None = Field(default=None, pattern="^[a-z0-9][a-z0-9_-]*$")
    """Name of its curve, for a loss that is listed more than once; None: ``name``."""

    @field_validator("id")
    @classmethod
    def _free(cls, value: str | None) -> str | None:
        if value == "total":
            raise ValueError("'total' is the curve of all losses together: choose another id")
        return value

    @property
    def key(self) -> str:
        """What the loss is called in curves and messages."""
        return self.id or self.name

    @property
    def per(self) -> Literal["sentence", "token", "pair"]:
        """Over what the loss of a batch is a mean; ``pair`` is of a sentence's tokens, each with each."""
        return "token"

    def units(self, lengths: Sequence[int]) -> float:
        """Returns over how many of them it is, for sentences of these numbers of tokens."""
        powers = {"sentence": 0, "token": 1, "pair": 2}
        return float(sum(length ** powers[self.per] for length in lengths))

    def state_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the (student, teacher) hidden states that the loss compares; see :class:`Outputs` for their numbers.

        Raises:
            RecipeError: a layer map that does not fit the two depths.
        """
        return ()

    def layer_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the zero-based (student, teacher) layers whose queries, keys and values the loss compares.

        Raises:
            RecipeError: a layer map that does not fit, or models whose attentions cannot be compared.
        """
        return ()

    @abstractmethod
    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term for a pair of models."""


class MappedLoss(LossSettings):
    """Base of a loss that compares layer with layer."""

    map: LayerMap = "uniform"
    """The teacher layer that each student layer follows."""
    layers: Literal["all", "last"] | tuple[int, ...] = "all"
    """Which of the mapped student layers are compared; a list counts from 0, e.g. for transfer layer by layer."""

    def mapped(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the zero-based (student, teacher) layers that are compared.

        Raises:
            RecipeError: a layer map that does not fit the two depths, or ``layers`` that it does not hold.
        """
        pairs = resolve_pairs(self.map, student_layers=student.layers, teacher_layers=teacher.layers)
        if self.layers == "all":
            return pairs
        if self.layers == "last":
            return pairs[-1:]
        known = {ours for ours, _ in pairs}
        if not self.layers or not known.issuperset(self.layers):
            raise RecipeError(
                f"'layers: {list(self.layers)}' of a loss; expected some of {sorted(known)}, the student layers that "
                "have a teacher layer",
                remedy="count the student's layers from 0, or leave 'layers' out",
            )
        return tuple(pair for pair in pairs if pair[0] in self.layers)


def check_losses(losses: Sequence[LossSettings]) -> None:
    """Refuses a list of losses that says one thing twice, or nothing for a part of the run.

    Raises:
        ValueError: a loss that is listed twice, or a share of the run at which none counts.
    """
    twice = [name for name, count in Counter(loss.key for loss in losses).items() if count > 1]
    if twice:
        raise ValueError(f"the loss '{twice[0]}' is listed twice: give one of them an 'id'")
    check_covered(losses)


def needs_of(losses: Iterable[LossSettings], student: Shape, teacher: Shape) -> tuple[Needs, Needs]:
    """Returns what the losses read of student and teacher.

    Raises:
        RecipeError: a loss that does not fit the two models.
    """
    ours, theirs = Needs(), Needs()
    for loss in losses:
        states, layers = loss.state_pairs(student, teacher), loss.layer_pairs(student, teacher)
        ours |= Needs(tuple(state for state, _ in states), tuple(layer for layer, _ in layers))
        theirs |= Needs(tuple(state for _, state in states), tuple(layer for _, layer in layers))
    return ours, theirs


def projections(count: int, student: Shape, teacher: Shape) -> nn.ModuleList:
    """Returns ``count`` learned projections from the student's width to the teacher's; identities where they agree."""
    same = student.hidden_size == teacher.hidden_size
    return nn.ModuleList(
        nn.Identity() if same else nn.Linear(student.hidden_size, teacher.hidden_size, bias=False) for _ in range(count)
    )
