"""Which node of an encoder computes in half precision, and which stays an FP32 island."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

import onnx_ir as ir

GEMMS = frozenset({"MatMul", "Gemm", "Conv"})
_NORMALISATIONS = frozenset({"LayerNormalization", "InstanceNormalization", "GroupNormalization"})
_SENSITIVE = frozenset(
    {"Softmax", "LogSoftmax", "Pow", "Exp", "Log", "Sqrt", "Tanh", "ReduceMean", "ReduceSum", "ReduceSumSquare"}
)
"""Operators that leave half range (squares, cubes, exponentials) or sum many terms; what feeds them stays FP32 too."""
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Where", "Neg", "Abs", "Clip", "Min", "Max"})
_MOVEMENT = frozenset(
    {
        "Reshape",
        "Transpose",
        "Gather",
        "GatherElements",
        "GatherND",
        "Slice",
        "Split",
        "Concat",
        "Squeeze",
        "Unsqueeze",
        "Expand",
        "Identity",
        "Flatten",
        "Pad",
        "Tile",
    }
)


class Placement(Enum):
    """Where a node computes."""

    HALF = auto()
    FULL = auto()
    FOLLOW = auto()
    """Data movement: in whatever type its data arrives."""


def place(model: ir.Model, keep_fp32: Callable[[ir.Node], bool]) -> dict[ir.Node, Placement]:
    """Returns the placement of every node.

    FP32 are: nodes that ``keep_fp32`` names; floats computed from integers alone (masks, relative positions), because
    2049 is no half number; normalisations; operators that leave half range, with the elementwise chain from the GEMM
    that feeds them (so scale and mask are applied to the scores in FP32). Data movement follows its input; all else
    is half.
    """
    activations = _activations(model.graph)
    islands = _islands(model.graph)
    placement: dict[ir.Node, Placement] = {}
    for node in model.graph:
        carries = any(value in activations for value in (*node.inputs, *node.outputs) if value is not None)
        if keep_fp32(node) or not carries or node in islands:
            placement[node] = Placement.FULL
        elif node.op_type in _MOVEMENT or node.op_type == "Cast":
            placement[node] = Placement.FOLLOW
        else:
            placement[node] = Placement.HALF
    return placement


def is_float(value: ir.Value | None) -> bool:
    """Returns whether a value holds float32 numbers (half ones included once it has been cast)."""
    return value is not None and value.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def _activations(graph: ir.Graph) -> set[ir.Value]:
    """Float values that depend on a stored weight."""
    found = {
        value
        for value in graph.initializers.values()
        if is_float(value) and value.const_value is not None and value.const_value.size > 1
    }
    for node in graph:
        if any(value in found for value in node.inputs if value is not None):
            found.update(value for value in node.outputs if is_float(value))
    return found


def _islands(graph: ir.Graph) -> set[ir.Node]:
    found = {node for node in graph if node.op_type in _NORMALISATIONS | _SENSITIVE}
    pending = [node for node in found if node.op_type in _SENSITIVE]
    while pending:
        for value in pending.pop().inputs:
            producer = value.producer() if value is not None else None
            if producer is not None and producer.op_type in _ELEMENTWISE and producer not in found:
                found.add(producer)
                pending.append(producer)
    return found
