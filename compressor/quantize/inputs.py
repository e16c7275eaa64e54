"""What enters each linear module on calibration text: seen one batch at a time, padding left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import nn

from compressor.text import ATTENTION_MASK

Inputs = Mapping[str, torch.Tensor]
"""Canonical input name to an int64 tensor of shape (batch, tokens)."""


def linear_modules(model: nn.Module) -> dict[str, nn.Linear]:
    """Returns the linear modules of a model by dotted path, a shared one once."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}


def visit_inputs(
    model: nn.Module,
    modules: Mapping[str, nn.Linear],
    batches: Iterable[Inputs],
    visit: Callable[[str, torch.Tensor], None],
) -> torch.Tensor:
    """Runs a model and shows what enters each module; returns the numbers of its first output over all sentences.

    Args:
        model: in evaluation mode.
        modules: by path; a module that is applied several times is shown each of its inputs.
        batches: padded batches.
        visit: gets a module's path and (rows, width) inputs of real tokens (of whole sentences behind the pooling).
    """
    mask = torch.ones(0)
    outputs = []

    def hook_for(path: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        def hook(_: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            values = arguments[0].detach()
            by_token = values.dim() == 3 and values.shape[:2] == mask.shape
            visit(path, values[mask.bool()] if by_token else values.reshape(-1, values.shape[-1]))

        return hook

    hooks = [module.register_forward_pre_hook(hook_for(path)) for path, module in modules.items()]
    try:
        with torch.inference_mode():
            for batch in batches:
                mask = batch[ATTENTION_MASK]
                outputs.append(model(**batch)[0].float().reshape(-1))
    finally:
        for hook in hooks:
            hook.remove()
    return torch.cat(outputs)


def quantize_rows(weight: torch.Tensor, levels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns a (outputs, inputs) weight in units of its step, and the step of each output, shape (outputs, 1).

    The step is the largest magnitude over ``levels``: the convention of every symmetric per-channel format here.
    """
    step = weight.abs().amax(dim=1, keepdim=True) / levels
    step = torch.where(step > 0, step, torch.ones_like(step))
    return weight / step, step
