"""Runs a classifier and keeps what the losses read: logits, hidden states, queries, keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from compressor.distill.outputs import Outputs, Projections
from compressor.families import adapter_for


def run_model(
    model: nn.Module, inputs: dict[str, torch.Tensor], states: Sequence[int] = (), layers: Sequence[int] = ()
) -> Outputs:
    """Runs a classifier on one batch, whatever attention implementation it was loaded with.

    Args:
        model: a transformers classifier of a known family.
        inputs: what it takes, tensors of shape (batch, tokens).
        states: numbers of the hidden states to keep.
        layers: zero-based layers whose queries, keys and values to keep.
    """
    with captured_projections(model, layers) as projections:
        found = model(**inputs, output_hidden_states=bool(states))
    return Outputs(found.logits, {state: found.hidden_states[state] for state in states}, projections)


@contextmanager
def captured_projections(model: nn.Module, layers: Sequence[int]) -> Iterator[dict[int, Projections]]:
    """Fills the yielded {zero-based layer: projections} when the model runs inside the block.

    Hooks see the projections themselves, so fused attention kernels, which return no attention, are as good as eager
    ones. A stored layer that is applied many times (ALBERT, shared layers) is seen at each of its depths.
    """
    found: dict[int, Projections] = {}
    if not layers:
        yield found
        return
    adapter = adapter_for(model.config)
    seen: dict[int, dict[int, torch.Tensor]] = {}
    depth = -1

    def entered(*_: Any) -> None:
        nonlocal depth
        depth += 1

    def record(place: int) -> Any:
        def hook(module: nn.Module, arguments: Any, output: torch.Tensor) -> None:
            # The first call in a layer is that of the tokens: DeBERTa projects relative positions with them after it.
            if depth in layers:
                seen.setdefault(depth, {}).setdefault(place, output)

        return hook

    with ExitStack() as hooks:
        for layer in adapter.stored_layers(model).values():
            hooks.enter_context(_removed(layer.register_forward_pre_hook(entered)))
            for place, module in enumerate(adapter.query_key_value(layer)):
                hooks.enter_context(_removed(module.register_forward_hook(record(place))))
        yield found
        found.update({layer: Projections(three[0], three[1], three[2]) for layer, three in seen.items()})


@contextmanager
def _removed(handle: Any) -> Iterator[None]:
    try:
        yield
    finally:
        handle.remove()
