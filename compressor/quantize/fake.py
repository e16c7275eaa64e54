"""Quantisation simulated in PyTorch: values are rounded to the grid of an exported file and stay floats.

Weights are symmetric with one scale per output channel (per row of an embedding table), as every exporter writes them.
Activations get a scale and zero point per row while the model runs (``dynamic``: what LiteRT's kernels do) or one pair
per tensor from ranges that were observed before (``static``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from compressor.families import adapter_for
from compressor.quantize.plan import ActivationRange

ACTIVATION_LEVELS = 255
"""Steps of an 8-bit activation."""


def levels_of(bits: int) -> int:
    """Returns the largest integer of a symmetric weight: 127 for 8 bits, 63 for 7, 7 for 4."""
    return int(2 ** (bits - 1)) - 1


def weight_scale(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Returns the step of each row of a matrix, shape (rows, 1): the row's largest magnitude is the last level."""
    largest = weight.detach().abs().amax(dim=1, keepdim=True)
    return torch.where(largest > 0, largest / levels_of(bits), torch.ones_like(largest))


def round_weight(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """Returns a matrix of shape (rows, columns) on its own grid; applying it twice changes nothing."""
    scale = weight_scale(weight, bits)
    return (weight / scale).round() * scale


def affine(low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns scale and zero point of an 8-bit range that is widened to hold 0, so that 0 is exact."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / ACTIVATION_LEVELS).clamp(min=1e-12)
    return scale, (-low / scale).round()


def round_activation(values: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Returns values on the 8-bit grid of a range; what lies outside is cut to it."""
    scale, zero = affine(low, high)
    return ((values / scale + zero).round().clamp(0, ACTIVATION_LEVELS) - zero) * scale


def round_rows(values: torch.Tensor) -> torch.Tensor:
    """Returns activations of shape (…, width), each row on the 8-bit grid of its own range."""
    return round_activation(values, values.amin(dim=-1, keepdim=True), values.amax(dim=-1, keepdim=True))


def quantizable(model: nn.Module) -> dict[str, nn.Module]:
    """Returns, by dotted path, the modules whose weights are stored in few bits: linear layers, word table.

    A module that is applied several times is one entry. Position and type tables are left out: they are small, and the
    exporters treat all tables alike.
    """
    adapter = adapter_for(model.config)
    linear = {path: module for path, module in model.named_modules() if isinstance(module, nn.Linear)}
    return {adapter.word_embeddings: model.get_submodule(adapter.word_embeddings), **linear}


@contextmanager
def quantized(
    model: nn.Module, bits: Mapping[str, int], ranges: Mapping[str, ActivationRange] | None = None
) -> Iterator[nn.Module]:
    """Runs the block with some modules of ``model`` quantised; the model is as before afterwards.

    Args:
        model: a classifier in evaluation mode.
        bits: module path to the bits of its weights.
        ranges: ranges of activations by module path; None: dynamic, per row.
    """
    saved: dict[str, torch.Tensor] = {}
    handles = []
    try:
        for path, width in bits.items():
            module: Any = model.get_submodule(path)
            saved[path] = module.weight.data
            module.weight.data = round_weight(module.weight.data, width)
            if isinstance(module, nn.Linear):
                handles.append(module.register_forward_pre_hook(_input_hook(None if ranges is None else ranges[path])))
                if ranges is not None:
                    handles.append(module.register_forward_hook(_output_hook(ranges[path])))
        yield model
    finally:
        for handle in handles:
            handle.remove()
        for path, weight in saved.items():
            model.get_submodule(path).weight.data = weight


@contextmanager
def observed(model: nn.Module) -> Iterator[dict[str, ActivationRange]]:
    """Runs the block while the ranges of every linear layer's input and output are recorded into what is yielded."""
    found: dict[str, ActivationRange] = {}
    handles = []
    for path, module in quantizable(model).items():
        if isinstance(module, nn.Linear):
            handles.append(module.register_forward_hook(_observer(path, found)))
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _observer(path: str, found: dict[str, ActivationRange]) -> Callable[..., None]:
    def observe(module: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        earlier = found.get(path)
        found[path] = ActivationRange(
            input=_widened(inputs[0], earlier.input if earlier else None),
            output=_widened(output, earlier.output if earlier else None),
        )

    return observe


def _widened(values: torch.Tensor, earlier: tuple[float, float] | None) -> tuple[float, float]:
    low, high = float(values.detach().min()), float(values.detach().max())
    return (low, high) if earlier is None else (min(low, earlier[0]), max(high, earlier[1]))


def _input_hook(known: ActivationRange | None) -> Callable[..., tuple[torch.Tensor, ...]]:
    def hook(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (round_rows(inputs[0]) if known is None else _rounded(inputs[0], known.input), *inputs[1:])

    return hook


def _output_hook(known: ActivationRange) -> Callable[..., torch.Tensor]:
    return lambda module, inputs, output: _rounded(output, known.output)


def _rounded(values: torch.Tensor, limits: tuple[float, float]) -> torch.Tensor:
    return round_activation(values, *(values.new_tensor(limit) for limit in limits))
