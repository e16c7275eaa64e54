"""A narrower hidden size: the same channels are kept in every tensor that reads or writes the residual stream."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from compressor.core.errors import RecipeError
from compressor.families import adapter_for
from compressor.shapes import CLASSIFIER, Shape, build, shape_of


def narrower_config(config: Any, width: int) -> Any:
    """Returns a copy of a config with another hidden size.

    Raises:
        RecipeError: a size that is not smaller, or that the config's number of heads does not divide.
    """
    adapter = adapter_for(config)
    old, heads = adapter.hidden_size(config), adapter.num_heads(config)
    if not 0 < width < old or width % heads:
        raise RecipeError(
            f"hidden: {width} is no smaller width of this model; expected a multiple of {heads} below {old}",
            remedy=f"choose {max(heads, min(width, old - 1) // heads * heads)}",
        )
    made = copy.deepcopy(config)
    for key in (adapter.hidden_size_key, *adapter.width_keys):
        if getattr(config, key, None) == old:
            setattr(made, key, width)
    return made


def narrowed_parameters(
    config: Any, shape: Shape, width: int, auto_class: str = CLASSIFIER
) -> dict[str, tuple[int, ...]]:
    """Returns the axes of every parameter of a model that follow the hidden size.

    They are found by building the model at both sizes and comparing: no family has to list its tensors.
    """
    narrower = narrower_config(config, width)
    # The shape has the heads; a width that the config's number of heads does not divide could not even be built.
    config = copy.deepcopy(config)
    setattr(config, adapter_for(config).heads_key, 1)
    with torch.device("meta"):
        wide = dict(build(config, shape, auto_class=auto_class).named_parameters())
        thin = dict(build(narrower, shape, auto_class=auto_class).named_parameters())
    return {
        name: tuple(
            axis for axis, pair in enumerate(zip(tensor.shape, thin[name].shape, strict=True)) if len({*pair}) > 1
        )
        for name, tensor in wide.items()
    }


def keep_channels(model: nn.Module, channels: Sequence[int], *, auto_class: str = CLASSIFIER) -> nn.Module:
    """Returns a new model that keeps the named channels of the hidden states; heads keep their size.

    Args:
        model: a model with a head.
        channels: zero-based, ascending.
        auto_class: the transformers class that loads it.
    """
    config: Any = model.config
    shape = shape_of(model)
    index = torch.tensor(list(channels))
    axes = narrowed_parameters(config, shape, len(channels), auto_class)
    made = build(narrower_config(config, len(channels)), shape, auto_class=auto_class)
    theirs = dict(model.named_parameters())
    with torch.no_grad():
        for name, target in made.named_parameters():
            value: torch.Tensor = theirs[name]
            for axis in axes[name]:
                value = value.index_select(axis, index)
            target.copy_(value)
    return made.eval()


def channel_importance(model: nn.Module, shape: Shape) -> torch.Tensor:
    """Returns the root of the sum of squares of all weights that read or write a channel, each tensor counted alike.

    Returns:
        Shape (hidden size,).
    """
    config: Any = model.config
    adapter = adapter_for(config)
    width = adapter.hidden_size(config)
    axes = narrowed_parameters(config, shape, width - width % adapter.num_heads(config) - adapter.num_heads(config))
    total = torch.zeros(width, dtype=torch.float64)
    for name, parameter in model.named_parameters():
        for axis in axes.get(name, ()) if adapter.in_body(name) else ():
            if parameter.shape[axis] == width:
                others = [other for other in range(parameter.dim()) if other != axis]
                power = parameter.detach().double().square()
                power = power.sum(dim=others) if others else power
                total += power / power.mean().clamp(min=1e-30)
    return total.sqrt()
