"""What a model says of a batch, as the losses see it, and what they must know of it beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch

from compressor import shapes
from compressor.families import adapter_for


class Projections(NamedTuple):
    """Queries, keys and values of one layer, the heads side by side; each of shape (batch, tokens, heads · size)."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


@dataclass(frozen=True)
class Outputs:
    """Outputs of teacher or student on one batch."""

    logits: torch.Tensor
    """Shape (batch, labels)."""
    hidden_states: dict[int, torch.Tensor] = field(default_factory=dict)
    """State 0 is the embeddings' output, state i the output of layer i counted from 1; shape (batch, tokens, width)."""
    projections: dict[int, Projections] = field(default_factory=dict)
    """By zero-based layer: layer i reads state i."""

    def float(self) -> Self:
        """Returns the same in float32, for losses are not computed in half precision."""
        return type(self)(
            self.logits.float(),
            {state: tensor.float() for state, tensor in self.hidden_states.items()},
            {layer: Projections(*(tensor.float() for tensor in three)) for layer, three in self.projections.items()},
        )


@dataclass(frozen=True)
class Needs:
    """Which outputs of one model the losses read."""

    states: tuple[int, ...] = ()
    """Numbers of hidden states, ascending."""
    layers: tuple[int, ...] = ()
    """Zero-based layers whose queries, keys and values are read, ascending."""

    def __or__(self, other: Needs) -> Needs:
        """Returns what either needs."""
        return Needs(tuple(sorted({*self.states, *other.states})), tuple(sorted({*self.layers, *other.layers})))


@dataclass(frozen=True)
class Shape:
    """What a loss must know of a model before training."""

    layers: int
    hidden_size: int
    heads: tuple[int, ...] = ()
    """Attention heads of each layer; empty where the model has no queries, keys and values to compare."""
    head_size: int = 0
    plain_scores: bool = True
    """Attention scores are the scaled product of queries and keys alone."""

    def attention_width(self, layer: int) -> int:
        """Returns the width of the queries of a zero-based layer."""
        return self.heads[layer] * self.head_size


def model_shape(config: Any, shape: shapes.Shape | None = None) -> Shape:
    """Returns what the losses must know of a model.

    Args:
        config: its transformers config.
        shape: what the config cannot say, as read off the model; default what the config carries, if anything.
    """
    adapter = adapter_for(config)
    layers, found = adapter.num_layers(config), shape or shapes.forecast_shape(config)
    if found is None:
        heads = (adapter.num_heads(config),) * layers
        head_size = adapter.attention_width(config) // adapter.num_heads(config)
    else:
        # A sharing family stores fewer layers than it applies, each for an equal part of the depth.
        applied, head_size = found.applied, found.head_size
        heads = tuple(applied[depth * len(applied) // layers].heads for depth in range(layers))
    return Shape(
        layers=layers,
        hidden_size=adapter.hidden_size(config),
        heads=heads,
        head_size=head_size,
        plain_scores=adapter.plain_scores,
    )
