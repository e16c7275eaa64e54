"""FP16 in the graph itself: strongly typed, every weight cast once, explicit Cast nodes at the borders."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from compressor.core.errors import StageError
from export.onnx.half_rules import Placement, is_float, place
from export.onnx.passes.finite_masks import HALF_MAX

_HALF, _FULL = ir.DataType.FLOAT16, ir.DataType.FLOAT


def to_half(model: ir.Model, keep_fp32: Callable[[ir.Node], bool] = lambda node: False) -> None:
    """Turns a clean FP32 graph into a strongly typed FP16 one, in place.

    GEMMs, embeddings and elementwise work compute in half; the islands of :mod:`export.onnx.half_rules` stay FP32.
    Graph inputs and outputs keep their types. A weight that both sides read is stored in half and cast back where FP32
    reads it, so no weight is ever stored twice.

    Args:
        model: a graph without subgraphs, from :func:`export.onnx.passes.clean`.
        keep_fp32: names further nodes that stay FP32.

    Raises:
        StageError: a weight does not fit half precision, or the number of stored weights changed.
    """
    common.ShapeInferencePass()(model)
    before = len(model.graph.initializers)
    _Caster(model.graph, place(model, keep_fp32)).run()
    common.TopologicalSortPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.ShapeInferencePass()(model)
    after = len(model.graph.initializers)
    if after != before:
        raise StageError(
            f"the FP16 graph stores {after} weights; expected {before} as in FP32", remedy="report this model"
        )


def store_half(model: ir.Model, nodes: Collection[str]) -> None:
    """Stores the weight matrices of ``nodes`` (names) in half and casts them back where they are read, in place.

    The graph computes as before; a runtime widens such weights once, as it loads the file. A matrix that other nodes
    read as well stays as it is, for it would have to be stored twice.

    Raises:
        StageError: a weight does not fit half precision.
    """
    for value in list(model.graph.initializers.values()):
        uses = list(value.uses())
        matrix = value.const_value is not None and is_float(value) and len(value.const_value.shape) >= 2
        if not matrix or not uses or any(str(use.node.name) not in nodes for use in uses):
            continue
        _store_half(value)
        widen = ir.node("Cast", [value], {"to": int(_FULL)}, name=f"{value.name}/Cast_float")
        widen.outputs[0].name = f"{value.name}_float"
        widen.outputs[0].dtype, widen.outputs[0].shape = _FULL, value.shape
        model.graph.insert_before(model.graph[0], widen)
        for use in uses:
            use.node.replace_input_with(use.idx, widen.outputs[0])


class _Caster:
    """One walk over a graph that gives every float value its type and puts casts where types meet."""

    def __init__(self, graph: ir.Graph, placement: dict[ir.Node, Placement]) -> None:
        self._graph = graph
        self._placement = placement
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._halved: set[ir.Value] = set()

    def run(self) -> None:
        nodes = list(self._graph)
        for node in nodes:
            if self._type_of(node) is _HALF:
                self._halved.update(value for value in node.inputs if value is not None and _is_stored(value))
        for value in self._halved:
            _store_half(value)
        for node in nodes:
            self._give_type(node)
        for index, output in enumerate(self._graph.outputs):
            if output.dtype is _HALF:
                self._restore_output(index, output)

    def _type_of(self, node: ir.Node) -> ir.DataType | None:
        """Type a node computes in, by placement; data movement out of a stored table reads it in half."""
        place_of = self._placement[node]
        if place_of is Placement.FOLLOW:
            return _HALF if is_float(node.inputs[0]) and _is_stored(node.inputs[0]) else None
        return _HALF if place_of is Placement.HALF else _FULL

    def _give_type(self, node: ir.Node) -> None:
        wanted = self._type_of(node)
        if wanted is None:
            wanted = _HALF if any(v is not None and v.dtype is _HALF for v in node.inputs) else _FULL
        for index, value in enumerate(node.inputs):
            if value is not None and is_float(value) and value.dtype is not wanted:
                node.replace_input_with(index, self._cast(value, wanted, node))
        if node.op_type == "Cast":
            self._retarget(node, wanted)
        for output in node.outputs:
            if is_float(output):
                output.dtype = wanted

    @staticmethod
    def _retarget(node: ir.Node, wanted: ir.DataType) -> None:
        """A float-to-float Cast of the source model is no longer a change of type: it follows its input."""
        if is_float(node.inputs[0]) and is_float(node.outputs[0]):
            node.attributes["to"] = ir.AttrInt64("to", int(wanted))

    def _cast(self, value: ir.Value, wanted: ir.DataType, before: ir.Node) -> ir.Value:
        key = (value, wanted)
        if key not in self._casts:
            suffix = "half" if wanted is _HALF else "float"
            node = ir.node("Cast", [value], {"to": int(wanted)}, name=f"{value.name}/Cast_{suffix}")
            node.outputs[0].name = f"{value.name}_{suffix}"
            node.outputs[0].dtype, node.outputs[0].shape = wanted, value.shape
            self._graph.insert_before(before, node)
            self._casts[key] = node.outputs[0]
        return self._casts[key]

    def _restore_output(self, index: int, output: ir.Value) -> None:
        name = output.name
        output.name = f"{name}_half"
        node = ir.node("Cast", [output], {"to": int(_FULL)}, name=f"{name}/Cast_float")
        node.outputs[0].name, node.outputs[0].dtype, node.outputs[0].shape = name, _FULL, output.shape
        self._graph.append(node)
        self._graph.outputs[index] = node.outputs[0]


def _is_stored(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.is_initializer() and is_float(value)


def _store_half(value: ir.Value) -> None:
    if value.const_value is None or value.dtype is _HALF:
        return
    array = value.const_value.numpy()
    largest = float(np.max(np.abs(array), initial=0.0))
    if not largest <= HALF_MAX:
        raise StageError(
            f"{value.name} reaches {largest:.4g}; half precision ends at {HALF_MAX:.0f}",
            remedy="keep this module in FP32 with a policy rule, or export FP32",
        )
    value.const_value = ir.tensor(array.astype(np.float16), name=value.name)
    value.dtype = _HALF
