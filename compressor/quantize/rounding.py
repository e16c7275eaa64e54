"""Weights rounded so that a module's *outputs* change least, not each weight by itself.

The objective is AdaRound's (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization"): for the
inputs X of a linear module, minimise ``|X (W - W')^T|^2`` where every weight goes to one of its two neighbours on the
grid. With ``G = X^T X`` that is a quadratic, which is descended one input channel at a time: each step is exact and can
only lower it, and nothing has to be tuned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from compressor.core.schema import Record
from compressor.quantize.inputs import Inputs, linear_modules, quantize_rows, visit_inputs

SWEEPS = 4
_ON_GRID = 1e-3
"""Of a step: a weight so near an integer is one, and has no second neighbour; float32 divides a row's largest weight by
its step to 126.99999 or 127.00001, and one step more would change the grid of its row."""
_BLOCK = 128
"""Input channels whose choices are made before the others hear of them; a matter of speed only."""


class RoundedModule(Record):
    """What became of one module; errors are relative to the size of its outputs, on text held out from the choice."""

    module: str
    nearest_error: float
    adaptive_error: float
    kept: bool


def round_adaptively(
    model: nn.Module,
    paths: Sequence[str],
    batches: Sequence[Inputs],
    *,
    levels: int,
) -> tuple[RoundedModule, ...]:
    """Puts the weights of linear modules on their integer grid, in place, where that lowers the error of their outputs.

    Weights that go on the grid are written as multiples of their row's step; the row's largest weight stays, so every
    format that takes the step from it, with as many levels, finds the same integers. The other modules are left as
    they are.

    Args:
        model: a float classifier in evaluation mode.
        paths: linear modules that will be quantised.
        batches: calibration text; every second batch is held out to judge the choice.
        levels: largest magnitude of the integers.

    Returns:
        One record a module.
    """
    modules = {path: module for path, module in linear_modules(model).items() if path in set(paths)}
    chosen_on, judged_on = (_gram(model, modules, batches[start::2]) for start in (0, 1))
    found = []
    for path, module in modules.items():
        weight = module.weight.detach()
        rounded = adaptive(weight, chosen_on[path], levels=levels)
        units, step = quantize_rows(weight, levels)
        nearest = units.round() * step
        size = max(_error(weight, judged_on[path]), 1e-30)
        errors = [(_error(weight - other, judged_on[path]) / size) ** 0.5 for other in (nearest, rounded)]
        kept = errors[1] < errors[0]
        if kept:
            with torch.no_grad():
                module.weight.copy_(rounded)
        found.append(RoundedModule(module=path, nearest_error=errors[0], adaptive_error=errors[1], kept=kept))
    return tuple(found)


def adaptive(weight: torch.Tensor, gram: torch.Tensor, *, levels: int, sweeps: int = SWEEPS) -> torch.Tensor:
    """Returns a weight on its grid that a module's inputs can hardly tell from the original.

    Args:
        weight: float, shape (outputs, inputs).
        gram: ``X^T X`` of the inputs, shape (inputs, inputs).
        levels: largest magnitude of the integers.
        sweeps: passes over all input channels; it ends sooner where nothing moves.
    """
    units, step = quantize_rows(weight, levels)
    found = units.round()
    settled = (units - found).abs() < _ON_GRID
    low, high = (torch.where(settled, found, side) for side in (units.floor(), units.ceil()))
    pull = (found - units) @ gram  # half the gradient, in units of each row's step
    diagonal = gram.diagonal()
    for _ in range(sweeps):
        before = found.clone()
        for start in range(0, weight.shape[1], _BLOCK):
            block = slice(start, min(start + _BLOCK, weight.shape[1]))
            own, at_start = pull[:, block].clone(), found[:, block].clone()
            for column in range(start, block.stop):
                other = torch.where(found[:, column] == low[:, column], high[:, column], low[:, column])
                move = other - found[:, column]
                gain = move * (2 * own[:, column - start] + move * diagonal[column])
                move = torch.where(gain < 0, move, torch.zeros_like(move))
                found[:, column] += move
                own += move[:, None] * gram[column, block]
            pull += (found[:, block] - at_start) @ gram[block]
        if torch.equal(found, before):
            break
    return found * step


def _gram(model: nn.Module, modules: Mapping[str, nn.Linear], batches: Sequence[Inputs]) -> dict[str, torch.Tensor]:
    """Returns ``X^T X`` of what enters each module, of a size that no amount of text changes."""
    found = {path: torch.zeros(module.in_features, module.in_features) for path, module in modules.items()}

    def add(path: str, rows: torch.Tensor) -> None:
        found[path] += rows.T @ rows

    visit_inputs(model, modules, batches, add)
    return found


def _error(change: torch.Tensor, gram: torch.Tensor) -> float:
    return float(((change @ gram) * change).sum())
