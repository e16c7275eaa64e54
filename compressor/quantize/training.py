"""Fake quantisation that can be trained through: rounding lets the gradient pass, clipping stops it.

Weights are rounded to the very grid that the exporters will find again (a row's largest magnitude is its last level):
in a file with as many bits a trained weight is stored without a further error. Ranges of activations are, as chosen,
each row's own (dynamic), averages of what training sees (Jacob et al. 2018), or learned steps (LSQ, Esser et al. 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.utils import parametrize

from compressor.quantize.fake import ACTIVATION_LEVELS, affine, round_weight, weight_scale
from compressor.quantize.plan import ActivationRange
from compressor.share.embedding import FactorizedEmbedding

RangeKind = Literal["dynamic", "observed", "learned"]
_MOMENTUM = 0.02
"""Share of a new batch in an observed range."""


def pass_through(values: torch.Tensor, rounded: torch.Tensor) -> torch.Tensor:
    """Returns ``rounded`` with the gradient of ``values`` (Bengio et al. 2013)."""
    return values + (rounded - values).detach()


def on_grid(values: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """Returns activations on an 8-bit grid; the gradient to ``scale`` is LSQ's (Esser et al. 2020, equation 3)."""
    steps = (values.float() / scale + zero).clamp(0, ACTIVATION_LEVELS)
    return ((pass_through(steps, steps.round()) - zero) * scale).to(values.dtype)


class WeightOnGrid(nn.Module):
    """Parametrisation of a matrix: each row rounded to its own symmetric grid."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """Returns a matrix of shape (rows, columns)."""
        return pass_through(weight, round_weight(weight, self.bits))


class DynamicGrid(nn.Module):
    """Activations of shape (…, width), each row on the grid of its own range."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Returns values of the same shape."""
        wide = values.detach().float()
        scale, zero = affine(wide.amin(dim=-1, keepdim=True), wide.amax(dim=-1, keepdim=True))
        return on_grid(values, scale, zero)

    def limits(self) -> tuple[float, float] | None:
        """Returns None: the range is found at run time."""
        return None


class ObservedGrid(nn.Module):
    """Activations on the grid of an average of the ranges that training saw; fixed in evaluation."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, limits: tuple[float, float]) -> None:
        super().__init__()
        self.register_buffer("low", torch.tensor(limits[0]))
        self.register_buffer("high", torch.tensor(limits[1]))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Returns values of the same shape."""
        if self.training:
            wide = values.detach().float()
            self.low.lerp_(wide.amin(), _MOMENTUM)
            self.high.lerp_(wide.amax(), _MOMENTUM)
        return on_grid(values, *affine(self.low, self.high))

    def limits(self) -> tuple[float, float]:
        """Returns the range in use."""
        return _ends(*affine(self.low, self.high))


class LearnedGrid(nn.Module):
    """Activations on a grid whose step is trained; the zero point stays where the first observation put it."""

    zero: torch.Tensor

    def __init__(self, limits: tuple[float, float]) -> None:
        super().__init__()
        scale, zero = affine(torch.tensor(limits[0]), torch.tensor(limits[1]))
        self.scale = nn.Parameter(scale)
        self.register_buffer("zero", zero)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Returns values of the same shape."""
        # The gradient is shared by all values; without this factor a step would outrun the weights (section 2.2).
        gentle = (values.numel() * ACTIVATION_LEVELS) ** -0.5
        scale = self._positive()
        return on_grid(values, scale * gentle + (scale * (1 - gentle)).detach(), self.zero)

    def limits(self) -> tuple[float, float]:
        """Returns the range in use."""
        return _ends(self._positive().detach(), self.zero)

    def _positive(self) -> torch.Tensor:
        """A step of 0 or below would divide by nothing: training must not be able to reach it."""
        return self.scale.abs().clamp(min=1e-8)


Grid = DynamicGrid | ObservedGrid | LearnedGrid


class Quantizers(nn.Module):
    """The grids of a model's activations, made once before training; attached to the model while a block runs.

    Args:
        model: the classifier.
        bits: path of a linear layer or embedding table to the bits of its weights.
        kind: how ranges are found.
        ranges: observed ranges to start from, by module path; not needed for ``dynamic``.
        groups: path of a linear layer to the name of its input; layers that read the same tensor share a grid, because
            the tensor is quantised once.
    """

    def __init__(
        self,
        model: nn.Module,
        bits: Mapping[str, int],
        kind: RangeKind,
        ranges: Mapping[str, ActivationRange],
        groups: Mapping[str, str],
    ) -> None:
        super().__init__()
        self.bits = dict(bits)
        self.groups = {path: groups.get(path, path) for path in bits}
        self.linear = [path for path in bits if isinstance(model.get_submodule(path), nn.Linear)]
        # What comes out of a factorised table is no row of it, so its own weight is rounded, as a linear layer's is.
        tables = [path for path in bits if isinstance(model.get_submodule(path), FactorizedEmbedding)]
        self._parametrized = frozenset((*self.linear, *tables))
        self.inputs = nn.ModuleDict()
        self.outputs = nn.ModuleDict()
        for path in self.linear:
            name = _key(self.groups[path])
            known = None if kind == "dynamic" else ranges[path]
            if name not in self.inputs:
                self.inputs[name] = _grid(kind, None if known is None else known.input)
            # A dynamic product's result is no tensor of integers, so it is not rounded.
            if known is not None:
                self.outputs[_key(path)] = _grid(kind, known.output)

    @contextmanager
    def attached(self, model: nn.Module) -> Iterator[None]:
        """Runs the block with weights and activations of ``model`` on their grids; weights stay so afterwards."""
        handles: list[Any] = []
        for path, width in self.bits.items():
            module: Any = model.get_submodule(path)
            if path not in self._parametrized:
                # A row of a table has its own grid: rounding what was looked up is rounding the table.
                handles.append(module.register_forward_hook(_row_hook(width)))
                continue
            parametrize.register_parametrization(module, "weight", WeightOnGrid(width))
            if path not in self.linear:
                continue
            handles.append(module.register_forward_pre_hook(_input_hook(self.inputs[_key(self.groups[path])])))
            if _key(path) in self.outputs:
                handles.append(module.register_forward_hook(_output_hook(self.outputs[_key(path)])))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for path, width in self.bits.items():
                module = model.get_submodule(path)
                if path in self._parametrized:
                    parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
                with torch.no_grad():
                    module.weight.copy_(round_weight(module.weight, width))

    def ranges(self) -> dict[str, ActivationRange]:
        """Returns the ranges in use by module path; empty where they are found at run time."""
        found: dict[str, ActivationRange] = {}
        for path in self.linear:
            if _key(path) in self.outputs:
                inner: Any = self.inputs[_key(self.groups[path])]
                outer: Any = self.outputs[_key(path)]
                found[path] = ActivationRange(input=inner.limits(), output=outer.limits())
        return found


def input_groups(model: nn.Module, inputs: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Returns, for each linear layer, the first layer that reads the same tensor (query, key and value share theirs).

    Args:
        model: a classifier in evaluation mode.
        inputs: one batch.
    """
    seen: list[tuple[torch.Tensor, str]] = []
    groups: dict[str, str] = {}

    def remember(path: str) -> Any:
        def hook(module: nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
            if path not in groups:
                groups[path] = next((name for tensor, name in seen if tensor is arguments[0]), path)
                seen.append((arguments[0], groups[path]))

        return hook

    handles = [
        module.register_forward_pre_hook(remember(path))
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return groups


def off_grid(weight: torch.Tensor, bits: int) -> float:
    """Returns the largest distance of a matrix from its own grid, in steps; 0.5 is as far as can be."""
    steps = weight / weight_scale(weight, bits)
    return float((steps - steps.round()).abs().max())


def _grid(kind: RangeKind, limits: tuple[float, float] | None) -> Grid:
    if limits is None:
        return DynamicGrid()
    return LearnedGrid(limits) if kind == "learned" else ObservedGrid(limits)


def _ends(scale: torch.Tensor, zero: torch.Tensor) -> tuple[float, float]:
    return float(-zero * scale), float((ACTIVATION_LEVELS - zero) * scale)


def _key(path: str) -> str:
    """Module dictionaries take no dots in their keys."""
    return path.replace(".", "/")


def _row_hook(bits: int) -> Any:
    def hook(module: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        rows = output.reshape(-1, output.shape[-1])
        return pass_through(rows, round_weight(rows, bits)).reshape(output.shape)

    return hook


def _input_hook(grid: nn.Module) -> Any:
    return lambda module, inputs: (grid(inputs[0]), *inputs[1:])


def _output_hook(grid: nn.Module) -> Any:
    return lambda module, inputs, output: grid(output)
