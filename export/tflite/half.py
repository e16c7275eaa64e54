"""Weights stored in half precision, widened by a DEQUANTIZE operator when they are read.

The layout is the one ai-edge-quantizer's FLOAT_CASTING writes with explicit dequantisation; XNNPACK recognises it and
unpacks the weights once, at load time. It is done here because that quantizer compares the same matrix element by
element for every further length (25 s for 23 million weights and four lengths, where this takes well under one).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from compressor.core.errors import StageError
from export.tflite.flatbuffer import WeightUse, shape_of, type_names


def store_half(model: Any, uses: Iterable[tuple[WeightUse, str]]) -> None:
    """Stores the float32 weights of ``uses`` as float16, in place; each buffer once however many operators read it.

    Args:
        model: a ``ModelT``.
        uses: operators with the path of the module whose weight they read.

    Raises:
        StageError: a weight is too large for half precision (65504).
    """
    from ai_edge_litert import schema_py_generated as schema

    float32, float16 = (next(code for code, name in type_names().items() if name == n) for n in ("float32", "float16"))
    opcode = _opcode(model, schema.BuiltinOperator.DEQUANTIZE)
    stored: dict[int, int] = {}
    widened: set[tuple[int, int]] = set()
    for use, path in uses:
        wide = use.tensor
        if wide.type != float32 or (use.subgraph, id(wide)) in widened:
            continue
        widened.add((use.subgraph, id(wide)))
        if use.buffer not in stored:
            stored[use.buffer] = len(model.buffers)
            model.buffers.append(schema.BufferT(data=_to_half(model.buffers[use.buffer].data, path)))
        graph = model.subgraphs[use.subgraph]
        narrow = schema.TensorT(shape=shape_of(wide), type=float16, buffer=stored[use.buffer], name=wide.name)
        narrow.hasRank = wide.hasRank
        graph.tensors.append(narrow)
        index = next(position for position, tensor in enumerate(graph.tensors) if tensor is wide)
        wide.buffer = 0
        widen = schema.OperatorT(opcodeIndex=opcode, inputs=[len(graph.tensors) - 1], outputs=[index])
        widen.builtinOptionsType = schema.BuiltinOptions.DequantizeOptions
        widen.builtinOptions = schema.DequantizeOptionsT()
        graph.operators.insert(0, widen)


def _to_half(data: np.ndarray, path: str) -> np.ndarray:
    wide = np.frombuffer(data.tobytes(), dtype=np.float32)
    largest = float(np.abs(wide).max())
    if not largest <= float(np.finfo(np.float16).max):
        raise StageError(
            f"a weight of '{path or 'the model'}' is {largest:g}; half precision ends at 65504",
            remedy=f"keep that module in fp32: policy: [{{pattern: '{path or '*'}', precision: fp32}}]",
        )
    return wide.astype(np.float16).view(np.uint8)


def _opcode(model: Any, builtin: int) -> int:
    """Returns the index of a builtin operator's code, added where the model has none."""
    from ai_edge_litert import schema_py_generated as schema

    for index, code in enumerate(model.operatorCodes):
        if max(code.builtinCode, code.deprecatedBuiltinCode) == builtin:
            return index
    model.operatorCodes.append(schema.OperatorCodeT(deprecatedBuiltinCode=builtin, builtinCode=builtin, version=3))
    return len(model.operatorCodes) - 1
