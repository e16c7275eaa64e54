"""What a model says of a batch, as the losses see it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Outputs:
    """Outputs of teacher or student on one batch."""

    logits: torch.Tensor
    """Shape (batch, labels)."""
    hidden_states: dict[int, torch.Tensor] = field(default_factory=dict)
    """State 0 is the embeddings' output, state i the output of layer i counted from 1; shape (batch, tokens, width)."""


@dataclass(frozen=True)
class Shape:
    """What a loss must know of a model before training."""

    layers: int
    hidden_size: int
