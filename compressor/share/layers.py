"""Makes layers share their weights, in place (ALBERT, Lan et al. 2020)."""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from torch import nn

from compressor.families import adapter_for
from compressor.share.grouping import Groups, distances_of

Init = Literal["mean", "best"]


def share_layers(model: nn.Module, groups: Groups, *, init: Init) -> tuple[int | None, ...]:
    """Gives each group of layers one set of weights.

    Args:
        model: layers of one group have the same shape; changed in place.
        groups: of each depth; in a family that shares by itself, of each of its layer groups.
        init: ``mean``: the mean of the group's weights; ``best``: the layer nearest to all others of its group.

    Returns:
        For each group the depth whose weights it got, or None for a mean.
    """
    adapter = adapter_for(model.config)
    config: Any = model.config
    stored = adapter.stored_layers(model)
    layers = [*stored.values()] if adapter.shares_layers else [*adapter.encoder_layers(model)]
    chosen: list[int | None] = []
    made: list[nn.Module] = []
    for group in range(max(groups) + 1):
        members = [index for index, it in enumerate(groups) if it == group]
        best = members[int(distances_of([layers[it] for it in members]).sum(axis=0).argmin())]
        chosen.append(best if init == "best" else None)
        made.append(layers[best] if init == "best" else _mean([layers[it] for it in members]))
    owner, _, name = adapter.layers.rpartition(".")
    if adapter.layer_groups is None:
        setattr(model.get_submodule(owner), name, nn.ModuleList(made[group] for group in groups))
        return tuple(chosen)
    hosts = [*model.get_submodule(adapter.layer_groups).children()]
    for host, layer in zip(hosts, made, strict=False):
        setattr(host, adapter.group_layers, nn.ModuleList([layer]))
    owner, _, name = adapter.layer_groups.rpartition(".")
    setattr(model.get_submodule(owner), name, nn.ModuleList(hosts[: len(made)]))
    config.num_hidden_groups = len(made)
    return tuple(chosen)


def _mean(layers: list[nn.Module]) -> nn.Module:
    made = copy.deepcopy(layers[0])
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(torch.stack([layer.get_parameter(name) for layer in layers]).mean(dim=0))
    return made
