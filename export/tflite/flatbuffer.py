"""Reading a TFLite file and asking it plain questions: operators, constants, which operator uses which weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from compressor.core.errors import ArtifactError

IDENTIFIER = b"TFL3"
"""Bytes 4 to 8 of every TFLite file (schema.fbs, ``file_identifier``)."""

WEIGHT_INPUTS: dict[str, tuple[int, ...]] = {
    "FULLY_CONNECTED": (1,),
    "BATCH_MATMUL": (1, 0),
    "CONV_2D": (1,),
    "DEPTHWISE_CONV_2D": (1,),
    "EMBEDDING_LOOKUP": (1,),
    "GATHER": (0,),
}
"""Operators that may read a weight matrix, and the positions of the input that is one when it is constant."""

LOOKUPS = frozenset({"EMBEDDING_LOOKUP", "GATHER"})
"""Operators that read rows of a table; the rest of WEIGHT_INPUTS are GEMMs."""

_VIEWS = frozenset({"DEQUANTIZE", "TRANSPOSE", "RESHAPE", "CAST"})
"""Operators through which a constant is still the same weight."""


@dataclass(frozen=True)
class WeightUse:
    """One operator that reads a constant weight matrix."""

    subgraph: int
    operator: Any
    name: str
    """Builtin name of the operator."""
    tensor: Any
    """The stored constant (before any DEQUANTIZE)."""
    operand: Any
    """The tensor the operator itself reads: the constant, or what a view of it made of it."""

    @property
    def buffer(self) -> int:
        """Index of the buffer that holds the weight; equal for operators that share it."""
        return int(self.tensor.buffer)

    @property
    def elements(self) -> int:
        """Number of weights."""
        return int(np.prod(self.tensor.shape))


@cache
def builtin_names() -> dict[int, str]:
    """Returns {builtin operator code: name} of the schema that ai-edge-litert ships."""
    from ai_edge_litert import schema_py_generated as schema

    return {code: name for name, code in vars(schema.BuiltinOperator).items() if isinstance(code, int)}


@cache
def type_names() -> dict[int, str]:
    """Returns {tensor type code: name in lower case}, e.g. ``{0: "float32"}``."""
    from ai_edge_litert import schema_py_generated as schema

    return {code: name.lower() for name, code in vars(schema.TensorType).items() if isinstance(code, int)}


def read(path: Path) -> Any:
    """Returns the file as the schema's ``ModelT``.

    Raises:
        ArtifactError: no such file, or no TFLite file, or one that is cut short or damaged.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}", remedy="check the path") from error
    if content[4:8] != IDENTIFIER:
        raise ArtifactError(
            f"{path} does not start as a TFLite file: bytes 4 to 8 are {content[4:8]!r}, expected {IDENTIFIER!r}",
            remedy="name a .tflite file; convert again if this one was made here",
        )
    try:
        return parse(content)
    except Exception as error:  # a damaged offset shows as any of struct, index, value, type or attribute errors
        raise ArtifactError(
            f"{path} is damaged: its tables point outside the file ({type(error).__name__}: {error})",
            remedy="copy or convert it again",
        ) from error


def parse(content: bytes | bytearray | memoryview) -> Any:
    """Returns the ``ModelT`` of a file's content; data kept outside the tables is brought in.

    Weights of large files may stand after the flatbuffer, named by offset and size; every buffer of the result has
    them in ``data``.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(content, 0))
    if not model.subgraphs or model.buffers is None:
        raise ValueError("no subgraph")
    whole = np.frombuffer(content, dtype=np.uint8)
    for buffer in model.buffers:
        if buffer.offset > 1:
            if buffer.offset + buffer.size > len(whole):
                raise ValueError("a buffer ends outside the file")
            buffer.data = whole[buffer.offset : buffer.offset + buffer.size]
        buffer.offset = buffer.size = 0
    for graph in model.subgraphs:
        for tensor in graph.tensors or ():
            if tensor.buffer >= len(model.buffers):
                raise ValueError("a tensor names a buffer that is not there")
        for operator in graph.operators or ():
            if operator.opcodeIndex >= len(model.operatorCodes):
                raise ValueError("an operator has a code that is not there")
            if operator.largeCustomOptionsOffset > 1:
                start = operator.largeCustomOptionsOffset
                operator.customOptions = whole[start : start + operator.largeCustomOptionsSize]
            operator.largeCustomOptionsOffset = operator.largeCustomOptionsSize = 0
    return model


def operator_name(model: Any, operator: Any) -> str:
    """Returns an operator's builtin name; a custom operator's own name."""
    code = model.operatorCodes[operator.opcodeIndex]
    builtin = builtin_names().get(max(code.builtinCode, code.deprecatedBuiltinCode), "UNKNOWN")
    return text(code.customCode) if builtin == "CUSTOM" and code.customCode else builtin


def text(value: bytes | str | None) -> str:
    """Returns a flatbuffer string as ``str``."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def is_constant(model: Any, tensor: Any) -> bool:
    """Returns whether a tensor's values are stored in the file."""
    data = model.buffers[tensor.buffer].data
    return data is not None and len(data) > 0


def integer_constant_bytes(model: Any) -> int:
    """Returns the bytes of stored constants that are no floats (positions, shapes, masks), each buffer once."""
    found = {
        int(tensor.buffer): len(model.buffers[tensor.buffer].data)
        for graph in model.subgraphs
        for tensor in graph.tensors
        if "float" not in type_names()[tensor.type] and is_constant(model, tensor)
    }
    return sum(found.values())


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Returns a tensor's shape; ``()`` for a scalar."""
    return () if tensor.shape is None else tuple(int(size) for size in tensor.shape)


def weight_uses(model: Any) -> Iterator[WeightUse]:
    """Yields every operator that reads a constant matrix (two dimensions or more), in file order."""
    for index, graph in enumerate(model.subgraphs):
        producers = {int(output): op for op in graph.operators or () for output in op.outputs}
        for operator in graph.operators or ():
            name = operator_name(model, operator)
            for position in WEIGHT_INPUTS.get(name, ()):
                if position >= len(operator.inputs) or operator.inputs[position] < 0:
                    continue
                operand = graph.tensors[int(operator.inputs[position])]
                tensor = _stored(model, graph, producers, int(operator.inputs[position]))
                if tensor is not None and len(shape_of(tensor)) >= 2:
                    yield WeightUse(index, operator, name, tensor, operand)
                    break


def _stored(model: Any, graph: Any, producers: dict[int, Any], index: int) -> Any | None:
    """Returns the constant that tensor ``index`` is a view of, or None where it depends on the model's input."""
    while not is_constant(model, graph.tensors[index]):
        producer = producers.get(index)
        if producer is None or operator_name(model, producer) not in _VIEWS:
            return None
        index = int(producer.inputs[0])
    return graph.tensors[index]
