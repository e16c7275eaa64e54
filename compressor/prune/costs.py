"""What a shape costs: parameters and operations by arithmetic, milliseconds by a device's table."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from pydantic import Field, ValidationError, model_validator

from compressor.core.device import LatencyModel
from compressor.core.errors import UsageError
from compressor.core.schema import Record
from compressor.families import adapter_for
from compressor.families.adapter import linear
from compressor.shapes import Shape, build, parameters_of


class Costs:
    """Costs of the shapes that one model can be pruned to.

    Args:
        config: the model's transformers config.
        shape: the model's shape before.
    """

    def __init__(self, config: Any, shape: Shape) -> None:
        adapter = adapter_for(config)
        with torch.device("meta"):
            layer = next(iter(adapter.stored_layers(build(config, shape)).values()))
        projections = adapter.projections(layer)
        output = linear(layer, adapter.layer.attention_output)
        wide, narrow = adapter.feed_forwards(layer)[-1]
        self._shape = shape
        self._total = parameters_of(config, shape)
        self._head_weights = shape.head_size * (sum(it.in_features for it in projections) + output.out_features)
        self._head = self._head_weights + shape.head_size * sum(it.bias is not None for it in projections)
        self._neuron_weights = wide.in_features + narrow.out_features
        self._neuron = self._neuron_weights + (wide.bias is not None)
        self._depth = adapter.num_layers(config)
        self._shares = adapter.shares_layers

    def parameters(self, shape: Shape) -> int:
        """Returns the parameters of the whole model at another shape, each shared weight once."""
        heads, neurons = _units(shape.layers)
        heads_before, neurons_before = _units(self._shape.layers)
        return self._total - (heads_before - heads) * self._head - (neurons_before - neurons) * self._neuron

    def flops(self, shape: Shape, tokens: int) -> int:
        """Returns the operations of the encoder's matrix products for one sentence; a multiply-add counts as two."""
        heads, neurons = _units(self._applied(shape))
        scores = 2 * tokens * tokens * shape.head_size * heads
        return 2 * (tokens * (heads * self._head_weights + neurons * self._neuron_weights) + scores)

    def milliseconds(self, shape: Shape, tokens: int, model: LatencyModel) -> float:
        """Returns the predicted time of one sentence: what no layer costs, and each layer's own share."""
        applied = self._applied(shape)
        idle = model.predict_ms(0, applied[0].heads, applied[0].ffn[0], tokens)
        return idle + sum(model.predict_ms(1, it.heads, sum(it.ffn), tokens) - idle for it in applied)

    def _applied(self, shape: Shape) -> tuple[Any, ...]:
        """Returns the layers as often as they are applied."""
        if not self._shares:
            return shape.applied
        return tuple(shape.layers[index * len(shape.layers) // self._depth] for index in range(self._depth))


class CostTable(Record):
    """Times of one encoder layer on one device, measured at some widths: a ``LatencyModel``."""

    device: str
    tokens: int = Field(ge=1)
    idle_ms: float = Field(ge=0)
    """Time of the model without any layer: embeddings, pooler, head."""
    heads: tuple[int, ...] = Field(min_length=1)
    """Ascending."""
    intermediate: tuple[int, ...] = Field(min_length=1)
    """Ascending."""
    layer_ms: tuple[tuple[float, ...], ...]
    """One row for each of ``heads``, one column for each of ``intermediate``."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        rows = {len(row) for row in self.layer_ms}
        if len(self.layer_ms) != len(self.heads) or rows != {len(self.intermediate)}:
            raise ValueError("layer_ms needs a row for each of heads and a column for each of intermediate")
        if any(list(axis) != sorted(set(axis)) for axis in (self.heads, self.intermediate)):
            raise ValueError("heads and intermediate must ascend")
        return self

    @classmethod
    def load(cls, file: Path) -> CostTable:
        """Reads a table.

        Raises:
            UsageError: no such file, or no such table.
        """
        try:
            return cls.model_validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise UsageError(
                f"{file} is no latency table: {error}",
                remedy="expected JSON with device, tokens, idle_ms, heads, intermediate and layer_ms",
            ) from error

    def predict_ms(self, layers: int, heads: int, intermediate: int, tokens: int) -> float:
        """Returns the time by bilinear interpolation; beyond the table its outermost slope goes on.

        Raises:
            UsageError: the table was measured at another length.
        """
        if tokens != self.tokens:
            raise UsageError(
                f"the latency table of {self.device} holds times at {self.tokens} tokens; asked for {tokens}",
                remedy=f"set tokens: {self.tokens}, or measure a table at {tokens}",
            )
        table = np.asarray(self.layer_ms)
        columns = [_interpolate(self.intermediate, row, intermediate) for row in table]
        return self.idle_ms + layers * max(0.0, _interpolate(self.heads, np.asarray(columns), heads))


def _interpolate(at: tuple[int, ...], values: np.ndarray, x: int) -> float:
    if len(at) == 1:
        return float(values[0])
    left = min(max(bisect_right(at, x) - 1, 0), len(at) - 2)
    share = (x - at[left]) / (at[left + 1] - at[left])
    return float(values[left] + share * (values[left + 1] - values[left]))


def _units(layers: tuple[Any, ...]) -> tuple[int, int]:
    return sum(layer.heads for layer in layers), sum(sum(layer.ffn) for layer in layers)
