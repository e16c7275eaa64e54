"""Products in eight bits: weights as symmetric int8, one scale a column; activations as uint8.

Activations are unsigned because x86 kernels for two signed operands are many times slower. Their range is found at run
time (dynamic) or was observed before (static).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from compressor.quantize.levels import FULL_LEVELS
from compressor.quantize.observers import Range
from export.onnx.integers import quantize_columns
from export.onnx.rewriting import graph_of, inputs_of, insert, own_matrix, replace, stored

ACTIVATION_BITS = 8


def quantize_dynamic(products: Collection[ir.Node], *, levels: int = FULL_LEVELS) -> None:
    """Rewrites MatMul nodes to ``MatMulInteger`` between ``DynamicQuantizeLinear`` and a scale, in place.

    This is the pattern that ONNX Runtime fuses into one kernel (``DynamicQuantizeMatMul``). An activation that several
    products read is quantised once, a shared weight stored once.

    Args:
        products: MatMul nodes with a stored right-hand matrix; one whose matrix others read as well stays as it is.
        levels: largest magnitude of a weight.
    """
    quantized: dict[ir.Value, list[ir.Value]] = {}
    for node, weight in _owned(products).items():
        activation, source = inputs_of(node)
        integers, scales, zeros = _stored_columns(node, source, weight, levels)
        if activation not in quantized:
            quantized[activation] = insert(
                node, "DynamicQuantizeLinear", [activation], f"{activation.name}_quantized", outputs=3
            )
        values, scale, zero_point = quantized[activation]
        (product,) = insert(node, "MatMulInteger", [values, integers, zero_point, zeros], f"{node.name}_quant")
        (widened,) = insert(node, "Cast", [product], f"{node.name}_Cast", to=int(ir.DataType.FLOAT))
        (factor,) = insert(node, "Mul", [scale, scales], f"{node.name}_scale")
        (result,) = insert(node, "Mul", [widened, factor], f"{node.name}_Mul")
        replace(node, result)


def quantize_static(products: Collection[ir.Node], ranges: Mapping[str, Range], *, levels: int = FULL_LEVELS) -> None:
    """Puts ``QuantizeLinear`` and ``DequantizeLinear`` on both operands of MatMul nodes, in place.

    Only operands of products with a stored weight are quantised: sums, the attention mask, softmax and normalisation
    stay FP32, and a product's result is not rounded again.

    Args:
        products: MatMul nodes with a stored right-hand matrix; one whose matrix others read as well stays as it is.
        ranges: by name, of every left-hand operand.
        levels: largest magnitude of a weight.
    """
    widened: dict[ir.Value, ir.Value] = {}
    for node, weight in _owned(products).items():
        activation, source = inputs_of(node)
        integers, scales, zeros = _stored_columns(node, source, weight, levels)
        if activation not in widened:
            found = ranges[str(activation.name)]
            graph, name = graph_of(node), str(activation.name)
            scale = np.float32(found.scale(ACTIVATION_BITS, symmetric=False))
            zero_point = np.uint8(found.zero_point(ACTIVATION_BITS, symmetric=False))
            grid = [
                stored(graph, f"{name}_scale", np.asarray(scale)),
                stored(graph, f"{name}_zero", np.asarray(zero_point)),
            ]
            (values,) = insert(node, "QuantizeLinear", [activation, *grid], f"{name}_quantized")
            (widened[activation],) = insert(node, "DequantizeLinear", [values, *grid], f"{name}_widened")
        (matrix,) = insert(node, "DequantizeLinear", [integers, scales, zeros], f"{node.name}_weight", axis=1)
        (result,) = insert(node, "MatMul", [widened[activation], matrix], f"{node.name}_quant")
        replace(node, result)


def _owned(products: Collection[ir.Node]) -> dict[ir.Node, np.ndarray]:
    found = {node: own_matrix(node, 1, products) for node in products}
    return {node: weight for node, weight in found.items() if weight is not None}


def _stored_columns(
    node: ir.Node, source: ir.Value, weight: np.ndarray, levels: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Returns integers, scales and zero points of a weight, stored once however many nodes read it."""
    graph, name = graph_of(node), str(source.name)
    if f"{name}_int8" not in graph.initializers:
        integers, scales = quantize_columns(weight, levels)
        stored(graph, f"{name}_int8", integers)
        stored(graph, f"{name}_scale", scales)
        stored(graph, f"{name}_zero", np.zeros(scales.shape, np.int8))
    return tuple(graph.initializers[f"{name}_{end}"] for end in ("int8", "scale", "zero"))  # type: ignore[return-value]
