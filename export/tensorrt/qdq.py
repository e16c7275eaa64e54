"""Q/DQ around the inputs of matrix products: the form of INT8 that TensorRT builds without a calibrator.

Per tensor and symmetric for activations, per output channel and symmetric for weights; nothing after the product and
nothing on the bias, so that TensorRT fuses product, bias and what follows into one kernel that reads eight bits and
writes half precision (NVIDIA TensorRT developer guide, "Explicit quantization").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from compressor.quantize.observers import Range

LEVELS = 127
"""Largest code of symmetric int8; -128 is not used."""
_HALF, _FULL, _INT8 = ir.DataType.FLOAT16, ir.DataType.FLOAT, ir.DataType.INT8
_ZERO = "int8_zero"


@dataclass(frozen=True, kw_only=True)
class Product:
    """One matrix product with a stored weight that is to be computed in eight bits."""

    node: str
    activation: str
    """Name of the activation in the FP32 graph."""
    weight: str
    channel_axis: int
    """Axis of the weight that is the product's output channel."""


def product_of(node: ir.Node) -> Product | None:
    """Returns how ``node`` is quantised; None for anything but a plain product of an activation and a stored matrix."""
    if node.op_type not in ("MatMul", "Gemm") or len(node.inputs) < 2:
        return None
    activation, weight = node.inputs[0], node.inputs[1]
    if activation is None or weight is None or activation.const_value is not None or weight.const_value is None:
        return None
    if len(weight.const_value.shape) != 2 or node.attributes.get_int("transA", 0) != 0:
        return None
    axis = 0 if node.attributes.get_int("transB", 0) != 0 else 1
    return Product(node=str(node.name), activation=str(activation.name), weight=str(weight.name), channel_axis=axis)


def scale_of(largest: np.ndarray | float, dtype: type[np.floating]) -> np.ndarray:
    """Returns the scale at which ``largest`` is the last code, as ``dtype`` can hold it without losing digits."""
    smallest = float(np.finfo(dtype).tiny)
    scale = np.maximum(np.asarray(largest, dtype=np.float64) / LEVELS, smallest).astype(dtype)
    # Rounded down, the largest value would be cut off.
    cut = scale.astype(np.float64) * LEVELS < np.asarray(largest, dtype=np.float64)
    return np.asarray(np.where(cut, np.nextafter(scale, dtype(np.inf)), scale), dtype=dtype)


def quantize_weight(array: np.ndarray, axis: int, dtype: type[np.floating]) -> tuple[np.ndarray, np.ndarray]:
    """Returns int8 codes of the shape of ``array`` and one scale an output channel."""
    other = 1 - axis
    scale = scale_of(np.abs(array).max(axis=other), dtype)
    codes = np.rint(array / np.expand_dims(scale.astype(np.float32), other))
    return np.clip(codes, -LEVELS, LEVELS).astype(np.int8), scale


class QdqInserter:
    """Puts Q/DQ before the products of one graph; every activation and every weight gets its pair once.

    Args:
        model: the graph, float types already decided.
        weights: FP32 values of the weights by name, whatever the graph stores them in.
        store_int8: store weights in int8 with DQ alone; else keep the float weight and quantise it in the graph, which
            TensorRT before 9 needs, since its parser takes no int8 weights.
    """

    def __init__(self, model: ir.Model, weights: Mapping[str, np.ndarray], *, store_int8: bool) -> None:
        self._graph = model.graph
        self._weights = weights
        self._store_int8 = store_int8
        self._zero = self._initializer(_ZERO, np.zeros((), dtype=np.int8))
        self._done: dict[ir.Value, ir.Value] = {}

    def insert(self, node: ir.Node, product: Product, observed: Range) -> None:
        """Quantises both inputs of ``node``."""
        activation, weight = node.inputs[0], node.inputs[1]
        if activation is None or weight is None:
            raise ValueError(f"{node.name} has no two inputs")
        node.replace_input_with(0, self._done.get(activation) or self._activation(activation, node, observed))
        node.replace_input_with(1, self._done.get(weight) or self._weight(weight, node, product))

    def insert_table(self, node: ir.Node, weight: str) -> None:
        """Stores the embedding table that ``node`` (a Gather) looks up in int8, with one scale a row.

        TensorRT dequantises the rows it looks up, not the table.
        """
        table = node.inputs[0]
        if table is None:
            raise ValueError(f"{node.name} looks up nothing")
        if table not in self._done:
            codes, scales = quantize_weight(self._weights[weight], 0, _numpy(table))
            scale = self._initializer(f"{table.name}_scale", scales)
            self._dequantize(table, self._initializer(f"{table.name}_int8", codes), scale, node, 0)
        node.replace_input_with(0, self._done[table])

    def _activation(self, value: ir.Value, before: ir.Node, observed: Range) -> ir.Value:
        largest = max(abs(observed.low), abs(observed.high))
        scale = self._initializer(f"{value.name}_scale", scale_of(largest, _numpy(value)))
        codes = self._quantize(value, scale, self._zero, before, None)
        return self._dequantize(value, codes, scale, before, None)

    def _weight(self, value: ir.Value, before: ir.Node, product: Product) -> ir.Value:
        array, axis = self._weights[product.weight], product.channel_axis
        codes, scales = quantize_weight(array, axis, _numpy(value))
        scale = self._initializer(f"{value.name}_scale", scales)
        if self._store_int8:
            stored = self._initializer(f"{value.name}_int8", codes)
        else:
            zeros = self._initializer(f"{value.name}_zero", np.zeros(len(scales), dtype=np.int8))
            stored = self._quantize(value, scale, zeros, before, axis)
        return self._dequantize(value, stored, scale, before, axis)

    def _quantize(
        self, value: ir.Value, scale: ir.Value, zero: ir.Value, before: ir.Node, axis: int | None
    ) -> ir.Value:
        return self._node("QuantizeLinear", [value, scale, zero], value, _INT8, before, axis)

    def _dequantize(
        self, value: ir.Value, codes: ir.Value, scale: ir.Value, before: ir.Node, axis: int | None
    ) -> ir.Value:
        found = self._node("DequantizeLinear", [codes, scale], value, value.dtype or _FULL, before, axis)
        self._done[value] = found
        return found

    def _node(
        self, kind: str, inputs: list[ir.Value], value: ir.Value, dtype: ir.DataType, before: ir.Node, axis: int | None
    ) -> ir.Value:
        attributes = {} if axis is None else {"axis": axis}
        node = ir.node(kind, inputs, attributes, name=f"{value.name}/{kind}")
        node.outputs[0].name = f"{value.name}_{kind}"
        node.outputs[0].dtype, node.outputs[0].shape = dtype, value.shape
        producer = value.producer()
        if producer is not None:
            self._graph.insert_after(producer if kind == "QuantizeLinear" else _producer(inputs[0]), node)
        elif inputs[0].producer() is not None:
            self._graph.insert_after(_producer(inputs[0]), node)
        else:
            self._graph.insert_before(self._graph[0], node)
        return node.outputs[0]

    def _initializer(self, name: str, array: np.ndarray) -> ir.Value:
        if name not in self._graph.initializers:
            value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
            value.shape, value.dtype = ir.Shape(array.shape), value.const_value.dtype  # type: ignore[union-attr]
            self._graph.register_initializer(value)
        return self._graph.initializers[name]


def _producer(value: ir.Value) -> ir.Node:
    node = value.producer()
    if node is None:
        raise ValueError(f"{value.name} has no producer")
    return node


def _numpy(value: ir.Value) -> type[np.floating]:
    return np.float16 if value.dtype is _HALF else np.float32
