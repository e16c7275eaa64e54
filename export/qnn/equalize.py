"""Output channels of matrix products brought to one size before quantisation, and back to their own behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from export.calibration import Calibration
from export.onnx.policy import weight_nodes
from export.qnn.ranges import channel_maxima

OUTLIER = 8.0
"""Times the median channel from which on a largest channel takes three of eight bits from the others."""


@dataclass(frozen=True)
class _Layer:
    """A weight and a bias with every place that applies them: one, or one a layer where layers share them."""

    weight: ir.Value
    bias: ir.Value
    products: tuple[ir.Node, ...]
    sums: tuple[ir.Node, ...]


def equalize_outputs(model: ir.Model, calibration: Calibration) -> frozenset[ir.Node]:
    """Where a channel is far above the median, divides the weight and bias of each above it, and multiplies back after.

    A few channels that an encoder's feed-forward layers write are some hundred times larger than all others
    (Bondarenko et al. 2021, https://arxiv.org/abs/2109.12948), and the NPU has one range for all channels of a product
    and of its weight. Divided, they share that range with the others; the factor comes back in an operator of its own,
    whose result may have 16 bits. The function of the graph stays the same (cross-layer equalisation, Nagel et al.
    2019, https://arxiv.org/abs/1906.04721, with the inverse kept explicit because a residual sum follows).

    Args:
        model: the float graph, changed in place.
        calibration: text on which channels are measured.

    Returns:
        The nodes that multiply back.
    """
    layers = list(_layers(model))
    if not layers:
        return frozenset()
    maxima = channel_maxima(model, [_output(node) for layer in layers for node in layer.products], calibration)
    added: set[ir.Node] = set()
    for layer in layers:
        largest = np.max([maxima[_output(node)] for node in layer.products], axis=0)
        median = float(np.median(largest))
        if median > 0 and largest.max() > OUTLIER * median:
            added |= _rescale(model, layer, np.maximum(1.0, largest / median).astype(np.float32))
    return frozenset(added)


def _layers(model: ir.Model) -> Iterator[_Layer]:
    places: dict[ir.Value, list[tuple[ir.Node, ir.Node, ir.Value]]] = defaultdict(list)
    for node in weight_nodes(model, embeddings=False):
        found = _with_bias(node)
        if found is not None:
            places[found[0]].append((node, *found[1:]))
    for weight, found_places in places.items():
        products, sums, biases = zip(*found_places, strict=True)
        bias = biases[0]
        alone = set(weight.consumers()) == set(products) and set(bias.consumers()) == set(sums)
        if alone and set(biases) == {bias}:
            yield _Layer(weight, bias, products, sums)


def _with_bias(node: ir.Node) -> tuple[ir.Value, ir.Node, ir.Value] | None:
    """Returns weight, sum and bias of ``MatMul(x, weight) + bias``; None for anything else."""
    weight, readers = node.inputs[1], node.outputs[0].consumers()
    if node.op_type != "MatMul" or weight is None or weight.const_value is None or len(readers) != 1:
        return None
    (addition,) = readers
    biases = [value for value in addition.inputs if value is not None and value.const_value is not None]
    if addition.op_type != "Add" or len(biases) != 1 or addition.outputs[0].is_graph_output():
        return None
    return (weight, addition, biases[0]) if _array(biases[0]).ndim == 1 else None


def _rescale(model: ir.Model, layer: _Layer, factor: np.ndarray) -> set[ir.Node]:
    for value in (layer.weight, layer.bias):
        value.const_value = ir.tensor(_array(value) / factor, name=value.name)
    name = f"{layer.bias.name}_factor"
    back = ir.Value(
        name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(factor.shape),
        const_value=ir.tensor(factor, name=name),
    )  # fmt: skip
    model.graph.register_initializer(back)
    added = set()
    for addition in layer.sums:
        output = addition.outputs[0]
        node = ir.node("Mul", [output, back], name=f"{addition.name}_factor")
        (product,) = node.outputs
        product.name, product.type, product.shape = f"{output.name}_full", output.type, output.shape
        output.replace_all_uses_with(product)
        node.replace_input_with(0, output)
        model.graph.insert_after(addition, node)
        added.add(node)
    return added


def _array(value: ir.Value) -> np.ndarray:
    if value.const_value is None:
        raise TypeError(f"{value.name} is no stored tensor")
    return np.asarray(value.const_value.numpy())


def _output(node: ir.Node) -> str:
    return str(node.outputs[0].name)
