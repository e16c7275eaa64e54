"""Takes heads, neurons and layers out of a model in place; what stays computes exactly what it did before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from compressor.core.errors import ModelError
from compressor.families import FamilyAdapter, adapter_for
from compressor.families.adapter import linear
from compressor.shapes import shape_of, state_heads


def keep_heads(adapter: FamilyAdapter, layer: nn.Module, heads: Sequence[int], *, head_size: int) -> None:
    """Keeps the named heads of one layer, in the order given."""
    rows = torch.cat([torch.arange(head * head_size, (head + 1) * head_size) for head in heads])
    for projection in adapter.projections(layer):
        keep_rows(projection, rows)
    keep_columns(linear(layer, adapter.layer.attention_output), rows)
    state_heads(adapter, layer, heads=len(heads), head_size=head_size)


def keep_neurons(wide: nn.Linear, narrow: nn.Linear, neurons: Sequence[int]) -> None:
    """Keeps the named inner neurons of one feed-forward network."""
    index = torch.tensor(list(neurons))
    keep_rows(wide, index)
    keep_columns(narrow, index)


def keep_layers(model: nn.Module, layers: Sequence[int]) -> None:
    """Keeps the named depths of an encoder, in the order given, and says so in its config.

    Raises:
        ModelError: a family that applies one stored layer many times has no depths to choose from.
    """
    config: Any = model.config
    adapter = adapter_for(config)
    if adapter.shares_layers:
        if len(shape_of(model).layers) > 1:
            raise ModelError(
                f"the depths of an {adapter.model_type} with several layer groups cannot be chosen",
                remedy="share it into one group first",
            )
    else:
        owner, _, name = adapter.layers.rpartition(".")
        kept = nn.ModuleList(adapter.encoder_layers(model)[index] for index in layers)
        setattr(model.get_submodule(owner), name, kept)
    setattr(config, adapter.layers_key, len(layers))


def keep_rows(module: nn.Linear, rows: torch.Tensor) -> None:
    """Keeps outputs of a linear module."""
    module.weight = nn.Parameter(module.weight.detach()[rows].clone(), requires_grad=module.weight.requires_grad)
    if module.bias is not None:
        module.bias = nn.Parameter(module.bias.detach()[rows].clone(), requires_grad=module.bias.requires_grad)
    module.out_features = len(rows)


def keep_columns(module: nn.Linear, columns: torch.Tensor) -> None:
    """Keeps inputs of a linear module."""
    weight = module.weight.detach()[:, columns].clone()
    module.weight = nn.Parameter(weight, requires_grad=module.weight.requires_grad)
    module.in_features = len(columns)


def state_widths(model: nn.Module) -> None:
    """Writes the feed-forward width into the config where all layers have the same."""
    config: Any = model.config
    widths = {width for layer in shape_of(model).layers for width in layer.ffn}
    if len(widths) == 1:
        setattr(config, adapter_for(config).intermediate_key, widths.pop())
