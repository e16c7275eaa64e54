"""What a shape costs: parameters and operations by arithmetic, milliseconds by a device's table."""

from __future__ import annotations

from typing import Any

import torch

from compressor.core.latency import LatencyModel
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

    def milliseconds(self, shape: Shape, model: LatencyModel) -> float:
        """Returns the predicted time of one sentence: what no layer costs, and each layer's own share."""
        layers = (model.predict_ms(1, it.heads, sum(it.ffn)) - model.idle_ms for it in self._applied(shape))
        return model.idle_ms + sum(layers)

    def _applied(self, shape: Shape) -> tuple[Any, ...]:
        """Returns the layers as often as they are applied."""
        if not self._shares:
            return shape.applied
        return tuple(shape.layers[index * len(shape.layers) // self._depth] for index in range(self._depth))


def _units(layers: tuple[Any, ...]) -> tuple[int, int]:
    return sum(layer.heads for layer in layers), sum(sum(layer.ffn) for layer in layers)
