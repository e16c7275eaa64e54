"""The graph for TensorRT 8: FP32 types, older operators, and a list of which layers are pinned to which type.

Before 10 a network is weakly typed: the builder chooses each layer's type among those it is allowed, and what must not
be half has to be pinned. Before 8.6 the parser knows no LayerNormalization, before 8.4 it handles half-precision
weights only in part (onnx/onnx-tensorrt, docs/Changelog.md), and int8 weights are refused (NVIDIA/TensorRT#2163, of 8.4
and before). So the types stay FP32 and Q/DQ start from FP32 weights.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from compressor.core.schema import Record
from export.onnx.half_rules import GEMMS, Placement, place

WEAK_OPSET = 13
"""What every TensorRT 8 reads, and the first with Q/DQ by channel."""
_IR_VERSION = 7
"""The version of ONNX's file format that belongs to that opset."""
_DEFAULT_EPSILON = 1e-5


class PinnedLayers(Record):
    """Names of nodes whose layers a weakly typed builder must compute in one type."""

    fp32: tuple[str, ...] = ()
    fp16: tuple[str, ...] = ()


def to_weak(model: ir.Model, full: frozenset[str], quantized: frozenset[str]) -> PinnedLayers:
    """Rewrites a clean FP32 graph for TensorRT 8, in place.

    Args:
        model: the graph; Q/DQ are put in afterwards.
        full: names of nodes that the policy keeps in FP32.
        quantized: names of the products that get Q/DQ.

    Returns:
        The layers to pin: the FP32 islands of :mod:`export.onnx.half_rules`, and the products to be half.
    """
    common.ShapeInferencePass()(model)
    placement = place(model, lambda node: str(node.name) in full)
    islands = {node for node, where in placement.items() if where is Placement.FULL and _is_float(node)}
    fp32 = [str(node.name) for node in islands if node.op_type != "LayerNormalization"]
    for node in list(model.graph):
        if node.op_type == "Reshape" and not node.attributes.get_int("allowzero", 0):
            node.attributes.pop("allowzero", None)  # the attribute is younger than the opset; zero is what it means
        if node.op_type == "LayerNormalization":
            fp32 += [str(part.name) for part in _decompose(model, node)]
    fp16 = [
        str(node.name)
        for node, where in placement.items()
        if node.op_type in GEMMS and where is Placement.HALF and node.name not in quantized
    ]
    model.graph.opset_imports[""] = WEAK_OPSET
    model.ir_version = _IR_VERSION
    return PinnedLayers(fp32=tuple(sorted(fp32)), fp16=tuple(sorted(fp16)))


def _is_float(node: ir.Node) -> bool:
    return any(value.dtype is ir.DataType.FLOAT for value in node.outputs)


def _decompose(model: ir.Model, node: ir.Node) -> Iterator[ir.Node]:
    """Writes a LayerNormalization as mean, variance and scale, over the last axis (ONNX operator specification)."""
    data, scale = node.inputs[0], node.inputs[1]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if data is None or scale is None:
        raise ValueError(f"{node.name} has no data or no scale")
    epsilon = _constant(model, "layer_norm_epsilon", node.attributes.get_float("epsilon", _DEFAULT_EPSILON))
    steps: list[ir.Node] = []

    def step(kind: str, *inputs: ir.Value, **attributes: object) -> ir.Value:
        part = ir.node(kind, list(inputs), attributes, name=f"{node.name}/{kind}_{len(steps)}")
        part.outputs[0].name = f"{node.outputs[0].name}_{kind}_{len(steps)}"
        part.outputs[0].dtype = ir.DataType.FLOAT
        steps.append(part)
        return part.outputs[0]

    mean = step("ReduceMean", data, axes=[-1], keepdims=1)
    centred = step("Sub", data, mean)
    variance = step("ReduceMean", step("Mul", centred, centred), axes=[-1], keepdims=1)
    deviation = step("Sqrt", step("Add", variance, epsilon))
    result = step("Mul", step("Div", centred, deviation), scale)
    if bias is not None:
        result = step("Add", result, bias)
    result.name, result.shape = node.outputs[0].name, node.outputs[0].shape
    node.outputs[0].replace_all_uses_with(result, replace_graph_outputs=True)
    model.graph.insert_after(node, steps)
    model.graph.remove(node, safe=True)
    return iter(steps)


def _constant(model: ir.Model, prefix: str, number: float) -> ir.Value:
    name = f"{prefix}_{number:g}"
    if name not in model.graph.initializers:
        value = ir.Value(name=name, const_value=ir.tensor(np.float32(number), name=name))
        value.shape, value.dtype = ir.Shape(()), ir.DataType.FLOAT
        model.graph.register_initializer(value)
    return model.graph.initializers[name]
