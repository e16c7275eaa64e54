"""How large the single dimensions of heads and hidden states are: by their weights, or by their values on text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from compressor.data.batches import EncodedSplit, sorted_batches
from compressor.families import adapter_for
from compressor.families.adapter import linear
from compressor.shapes import shape_of
from compressor.text import ATTENTION_MASK

_BATCH = 16


@dataclass(frozen=True)
class AttentionSizes:
    """One stored layer, one number a row of its projections: shape (heads · head size,)."""

    head_size: int
    scores: torch.Tensor
    """How much a dimension adds to the attention scores: size of the query's times size of the key's."""
    values: torch.Tensor
    """How much a dimension adds to the answer: size of the value's times the norm of the weights that read it."""


def attention_sizes(model: nn.Module, text: EncodedSplit | None) -> list[AttentionSizes]:
    """Returns the sizes of each stored layer's dimensions.

    Args:
        model: in evaluation mode.
        text: a size is the root mean square over its tokens; None: the norm of the row of weights, bias included.
    """
    adapter = adapter_for(model.config)
    layers = [*adapter.stored_layers(model).values()]
    names = (adapter.layer.query, adapter.layer.key, adapter.layer.value)
    projections = [linear(layer, name) for layer in layers for name in names]
    sizes = iter([_norms(it) for it in projections] if text is None else _values(model, projections, text))
    return [
        AttentionSizes(
            shape_of(model).head_size,
            next(sizes) * next(sizes),
            next(sizes) * linear(layer, adapter.layer.attention_output).weight.detach().double().norm(dim=0),
        )
        for layer in layers
    ]


def channel_sizes(model: nn.Module, text: EncodedSplit) -> torch.Tensor:
    """Returns the root mean square of each hidden dimension over tokens and states, each state counted alike.

    Returns:
        Shape (hidden size,).
    """
    width = adapter_for(model.config).hidden_size(model.config)
    powers: dict[int, torch.Tensor] = {}
    with torch.inference_mode():
        for rows in sorted_batches(text.lengths, _BATCH):
            inputs = text.inputs(rows)
            mask = inputs[ATTENTION_MASK].bool()
            for place, state in enumerate(model(**inputs, output_hidden_states=True).hidden_states):
                if state.shape[-1] == width:
                    powers[place] = powers.get(place, torch.zeros(width)) + state[mask].double().square().sum(dim=0)
    return torch.stack([power / power.mean().clamp(min=1e-30) for power in powers.values()]).mean(dim=0).sqrt()


def _norms(module: nn.Linear) -> torch.Tensor:
    power = module.weight.detach().double().square().sum(dim=1)
    return (power if module.bias is None else power + module.bias.detach().double().square()).sqrt()


def _values(model: nn.Module, modules: list[nn.Linear], text: EncodedSplit) -> list[torch.Tensor]:
    powers = [torch.zeros(module.out_features, dtype=torch.float64) for module in modules]
    mask = torch.ones(0)

    def watch(place: int) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        def see(module: nn.Module, inputs: Any, output: torch.Tensor) -> None:
            # What else goes through a projection (DeBERTa's relative positions) is no token.
            if output.shape[:2] == mask.shape:
                powers[place] += output[mask.bool()].double().square().sum(dim=0)

        return see

    handles = [module.register_forward_hook(watch(place)) for place, module in enumerate(modules)]
    try:
        with torch.inference_mode():
            for rows in sorted_batches(text.lengths, _BATCH):
                inputs = text.inputs(rows)
                mask = inputs[ATTENTION_MASK]
                model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return [power.sqrt() for power in powers]
