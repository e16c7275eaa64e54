"""One stored copy where a graph holds both a weight and its transpose."""

from __future__ import annotations

import hashlib

import numpy as np
import onnx_ir as ir

_MINIMUM_BYTES = 16 * 1024
"""Below this a Transpose node costs more than the copy it saves."""


class TransposedWeightsPass(ir.passes.InPlacePass):
    """Replaces ``transpose(W)`` by a Transpose view of ``W``, or by Gemm's own ``transB``.

    Constant folding transposes one of two tied weights (embedding and head, or a weight used by both MatMul and Gemm),
    after which a search for equal bytes no longer sees that they are one. The copy that a MatMul reads is kept, because
    quantisers only accept a MatMul whose weight is a plain initializer.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the graph in place."""
        kept: dict[str, ir.Value] = {}
        modified = False
        weights = [value for value in model.graph.initializers.values() if _is_large_matrix(value)]
        for value in sorted(weights, key=lambda v: not _feeds_matmul(v)):
            array = _array(value)
            twin = kept.get(_digest(array.T))
            if twin is not None and np.array_equal(_array(twin), array.T):
                _replace_by_view(model.graph, value, twin)
                modified = True
            else:
                kept[_digest(array)] = value
        return ir.passes.PassResult(model, modified)


def _is_large_matrix(value: ir.Value) -> bool:
    tensor = value.const_value
    return (
        tensor is not None
        and tensor.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)
        and len(tensor.shape) == 2
        and tensor.nbytes >= _MINIMUM_BYTES
        and not value.is_graph_output()
    )


def _array(value: ir.Value) -> np.ndarray:
    if value.const_value is None:
        raise ValueError(f"{value.name} is no initializer")
    return value.const_value.numpy()


def _feeds_matmul(value: ir.Value) -> bool:
    return any(node.op_type == "MatMul" for node in value.consumers())


def _digest(array: np.ndarray) -> str:
    return f"{array.shape}{hashlib.sha1(np.ascontiguousarray(array).tobytes(), usedforsecurity=False).hexdigest()}"


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
