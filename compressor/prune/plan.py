"""From a model's shape and importances to what is kept: the same arithmetic for a dry run and for the real one."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from compressor.core.errors import RecipeError
from compressor.core.latency import LatencyModel
from compressor.families import adapter_for
from compressor.prune.allocation import Allocation, Scores, allocate
from compressor.prune.channels import narrower_config
from compressor.prune.config import Budget, PruneConfig
from compressor.prune.costs import Costs
from compressor.shapes import CLASSIFIER, Shape, parameters_of, plain_shape

_STEPS = 1000
"""A budget is met to a thousandth of heads and neurons."""


@dataclass(frozen=True, kw_only=True)
class PrunePlan:
    """What is kept, and what that makes."""

    config: Any
    """The transformers config of the result."""
    shape: Shape
    allocation: Allocation
    ratios: tuple[float, float]
    """Shares of heads and neurons that go."""
    saved: int
    """Parameters that go, by arithmetic, layers not counted."""


def kept_depths(config: Any, drop: int | tuple[int, ...], depths: tuple[float, ...]) -> tuple[int, ...]:
    """Returns the applied layers that stay, ascending.

    Args:
        config: the model's transformers config.
        drop: how many go, or which.
        depths: importances of the applied layers; where there are none, the last ones go first.

    Raises:
        RecipeError: a layer that is not there, or none would be left.
    """
    depth = adapter_for(config).num_layers(config)
    if isinstance(drop, int):
        order = sorted(range(depth), key=lambda index: (depths[index] if depths else 0.0, -index))
        dropped = {*order[:drop]}
    else:
        dropped = {*drop}
    if not dropped <= {*range(depth)} or len(dropped) >= depth or (isinstance(drop, int) and drop >= depth):
        raise RecipeError(
            f"drop_layers: {drop} does not fit a model of {depth} layers; expected some from 0 to {depth - 1}, not all",
            remedy="name fewer layers, or layers that are there",
        )
    return tuple(index for index in range(depth) if index not in dropped)


def shallower(config: Any, shape: Shape, kept: tuple[int, ...]) -> tuple[Any, Shape]:
    """Returns config and shape of a model with the named applied layers only."""
    adapter = adapter_for(config)
    made = copy.deepcopy(config)
    setattr(made, adapter.layers_key, len(kept))
    if adapter.shares_layers:
        return made, shape
    stored = [index if shape.groups is None else shape.groups[index] for index in kept]
    left = sorted(set(stored), key=stored.index)
    layers = tuple(shape.layers[index] for index in left)
    groups = None if len(left) == len(stored) else tuple(left.index(index) for index in stored)
    return made, shape.model_copy(update={"layers": layers, "groups": groups})


def plan_pruning(
    config: Any,
    shape: Shape,
    heads: Scores,
    neurons: Scores,
    settings: PruneConfig,
    *,
    multiple: int,
    auto_class: str = CLASSIFIER,
    latency: LatencyModel | None = None,
) -> PrunePlan:
    """Decides what is kept of a model whose layers are already chosen.

    Args:
        config: the model's transformers config.
        shape: its shape.
        heads: importances, see :func:`allocate`.
        neurons: likewise.
        settings: what is asked for.
        multiple: feed-forward widths become multiples of it.
        auto_class: the transformers class of the model, whose head may depend on the hidden size.
        latency: what predicts times, for a budget in milliseconds.

    Raises:
        RecipeError: a ratio or budget that would leave a layer empty, a hidden size that does not fit, or a latency
            model of something else.
    """
    target = config if settings.hidden is None else narrower_config(config, settings.hidden)
    if latency is not None and settings.budget is not None:
        latency.check(
            model_type=config.model_type, hidden_size=adapter_for(target).hidden_size(target), device=settings.device,
            head_size=shape.head_size, tokens=settings.budget.tokens,
        )  # fmt: skip

    def at(head_ratio: float, ffn_ratio: float) -> Allocation:
        return allocate(
            shape,
            heads,
            neurons,
            head_ratio=head_ratio,
            ffn_ratio=ffn_ratio,
            multiple=multiple,
            uniform=settings.uniform,
        )

    ratios = (settings.heads, settings.ffn)
    if settings.budget is not None:
        ratio = _least_ratio(settings.budget, Costs(target, shape), shape, at, latency)
        ratios = (ratio, ratio)
    allocation = at(*ratios)
    made = allocation.shape(shape)
    settled, _ = settle(target, made)
    return PrunePlan(
        config=settled,
        shape=made,
        allocation=allocation,
        ratios=ratios,
        saved=parameters_of(config, shape, auto_class) - parameters_of(target, made, auto_class),
    )


def settle(config: Any, shape: Shape) -> tuple[Any, Shape | None]:
    """Returns the config that says as much of a shape as a config can, and the shape, or None where that is all."""
    adapter = adapter_for(config)
    made = copy.deepcopy(config)
    widths = {width for layer in shape.layers for width in layer.ffn}
    if len(widths) == 1:
        setattr(made, adapter.intermediate_key, next(iter(widths)))
    return made, None if shape == plain_shape(made) else shape


def _least_ratio(budget: Budget, costs: Costs, shape: Shape, at: Any, latency: LatencyModel | None) -> float:
    def within(made: Shape) -> bool:
        if budget.parameters is not None:
            return costs.parameters(made) <= budget.parameters
        if budget.mflops is not None:
            return costs.flops(made, budget.tokens) <= budget.mflops * 1e6
        return latency is not None and costs.milliseconds(made, latency) <= (budget.ms or 0.0)

    best, low, high = None, 0, _STEPS - 1
    while low <= high:
        middle = (low + high) // 2
        try:
            fits = within(at(middle / _STEPS, middle / _STEPS).shape(shape))
        except RecipeError:  # more than there is to remove
            high = middle - 1
            continue
        if fits:
            best, high = middle, middle - 1
        else:
            low = middle + 1
    if best is None:
        raise RecipeError(
            "the budget is below what is left when every layer keeps one head and its fewest neurons",
            remedy="raise it, drop layers, or start from a smaller model",
        )
    return best / _STEPS
