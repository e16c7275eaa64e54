"""One stored copy where a graph holds a large weight several times, or a weight and its transpose."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

LARGE_BYTES = 16 * 1024
"""Below this a Transpose node costs more than the copy it saves."""
_COMPARED = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT64})
_SAMPLES = 64
"""Rows and columns, at equal distances, by which weights are told apart before they are compared in full."""


class TransposedWeightsPass(ir.passes.InPlacePass):
    """Removes copies of large weights, and replaces ``transpose(W)`` by a view of ``W`` or by Gemm's own ``transB``.

    One of two tied weights (embedding and head, or a weight used by both MatMul and Gemm) is stored transposed, after
    which a search for equal bytes no longer sees that they are one. The copy that a MatMul reads is kept, because
    quantisers only accept a MatMul whose weight is a plain initializer.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the graph in place."""
        kept: dict[bytes, list[ir.Value]] = {}
        modified = False
        weights = [value for value in model.graph.initializers.values() if _is_large(value)]
        for value in sorted(weights, key=lambda v: not _feeds_matmul(v)):
            array = _array(value)
            copy = _find(kept.get(_sample(array), []), array)
            flat = array.ndim == 2 and array.dtype.kind == "f"
            twin = _find(kept.get(_sample(array.T), []), array.T) if copy is None and flat else None
            if copy is not None:
                value.replace_all_uses_with(copy)
                del model.graph.initializers[str(value.name)]
            elif twin is not None:
                _replace_by_view(model.graph, value, twin)
            else:
                kept.setdefault(_sample(array), []).append(value)
            modified = modified or copy is not None or twin is not None
        return ir.passes.PassResult(model, modified)


def _is_large(value: ir.Value) -> bool:
    tensor = value.const_value
    return (
        tensor is not None
        and tensor.dtype in _COMPARED
        and tensor.nbytes >= LARGE_BYTES
        and not value.is_graph_output()
    )


def _array(value: ir.Value) -> np.ndarray:
    if value.const_value is None:
        raise ValueError(f"{value.name} is no initializer")
    return value.const_value.numpy()


def _feeds_matmul(value: ir.Value) -> bool:
    return any(node.op_type == "MatMul" for node in value.consumers())


def _sample(array: np.ndarray) -> bytes:
    """Returns what equal arrays have in common: the shape and elements from all over them."""
    steps = tuple(slice(None, None, max(1, size // _SAMPLES)) for size in array.shape)
    return repr((array.dtype.str, array.shape)).encode() + array[steps].tobytes()


def _find(values: list[ir.Value], array: np.ndarray) -> ir.Value | None:
    """Returns the value that holds the same bits as ``array``."""
    return next((value for value in values if _same_bits(_array(value), array)), None)


def _same_bits(left: np.ndarray, right: np.ndarray) -> bool:
    if left.ctypes.data == right.ctypes.data and left.strides == right.strides:
        return True
    bits = f"u{left.dtype.itemsize}"
    return bool(np.array_equal(left.view(bits), right.view(bits)))


def _replace_by_view(graph: ir.Graph, value: ir.Value, twin: ir.Value) -> None:
    for use in list(value.uses()):
        if use.node.op_type == "Gemm" and use.idx == 1:
            flipped = 0 if use.node.attributes.get_int("transB", 0) else 1
            use.node.attributes["transB"] = ir.AttrInt64("transB", flipped)
            use.node.replace_input_with(1, twin)
    uses = list(value.uses())
    if uses:
        view = ir.node("Transpose", [twin], {"perm": [1, 0]}, name=f"{value.name}/Transpose")
        view.outputs[0].name = f"{value.name}_view"
        view.outputs[0].shape, view.outputs[0].type = value.shape, value.type
        graph.insert_before(graph[0], view)
        for use in uses:
            use.node.replace_input_with(use.idx, view.outputs[0])
    del graph.initializers[str(value.name)]
