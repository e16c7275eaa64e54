"""The last step of every TFLite file: write it so that several lengths cost little more than one.

Each length is a subgraph of its own that repeats, for the same weights, tensor names, shapes, operator options and
per-channel quantisation tables. A flatbuffer refers to all of these by offset, and several tables may hold the same
offset (https://flatbuffers.dev/internals, "DAG"), so equal parts are written once. Names are for people and converters;
a runtime looks tensors up by index and entry points by their SignatureDef.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np

from compressor.core.errors import ModelError
from export.tflite.flatbuffer import IDENTIFIER
from export.tflite.modules import ModuleMap, store_modules

_ALIGNMENT = 16
"""Of weight data within the file (schema.fbs, ``force_align``): XNNPACK reads it in place."""
_KEPT_METADATA = frozenset({b"min_runtime_version", b"TFLITE_METADATA"})
_MAX_BYTES = 2**31 - 1
"""A flatbuffer's offsets are signed 32-bit numbers."""


def strip(model: Any) -> None:
    """Removes, in place, what no runtime reads: names of inner tensors, and the converter's metadata."""
    for graph in model.subgraphs:
        visible = {int(index) for index in (*graph.inputs, *graph.outputs)}
        for index, tensor in enumerate(graph.tensors):
            if index not in visible:
                tensor.name = None
    model.metadata = [entry for entry in model.metadata or () if entry.name in _KEPT_METADATA]


def merge_buffers(model: Any) -> dict[int, int]:
    """Stores equal constants once and drops buffers nothing refers to, in place; buffer 0 stays the empty one.

    Returns:
        {old buffer index: new buffer index}.
    """
    from ai_edge_litert import schema_py_generated as schema

    merged = [schema.BufferT()]
    seen: dict[bytes, int] = {}
    renumbered: dict[int, int] = {}

    def place(index: int) -> int:
        if index not in renumbered:
            data = model.buffers[index].data
            content = b"" if data is None else np.asarray(data, dtype=np.uint8).tobytes()
            if not content:
                renumbered[index] = 0
            else:
                position = seen.setdefault(content, len(merged))
                if position == len(merged):
                    merged.append(schema.BufferT(data=np.frombuffer(content, dtype=np.uint8)))
                renumbered[index] = position
        return renumbered[index]

    for graph in model.subgraphs:
        for tensor in graph.tensors:
            tensor.buffer = place(int(tensor.buffer))
    for entry in model.metadata or ():
        entry.buffer = place(int(entry.buffer))
    model.buffers = merged
    model.metadataBuffer = None
    return renumbered


def pack(model: Any) -> bytes:
    """Returns the file's content, every table and vector that occurs more than once written once.

    Raises:
        ModelError: the model does not fit a flatbuffer (2 GiB).
    """
    stored = sum(0 if buffer.data is None else len(buffer.data) + _ALIGNMENT for buffer in model.buffers)
    if stored >= _MAX_BYTES:
        raise ModelError(
            f"{stored / 1e9:.2f} GB of weights do not fit one TFLite file; expected at most {_MAX_BYTES / 1e9:.2f} GB",
            remedy="distill or prune the model first, or export onnx, which keeps large weights in a file of their own",
        )
    _share(model)
    builder = _SharingBuilder(min(stored + stored // 50 + 65536, _MAX_BYTES))
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(memoryview(builder.Bytes)[builder.Head() :])  # Output() would make one more copy


def compact(model: Any, modules: ModuleMap | None = None) -> bytes:
    """Returns the smallest file with the same graph, weights, inputs and outputs; ``model`` is used up.

    Args:
        model: a ``ModelT`` as :func:`export.tflite.flatbuffer.read` gives it.
        modules: the module of each weight, by the model's present buffer indices; stored in the file.

    Raises:
        ModelError: the model does not fit a flatbuffer (2 GiB).
    """
    strip(model)
    renumbered = merge_buffers(model)
    if modules is not None:
        weights = {renumbered[buffer]: path for buffer, path in modules.weights.items() if buffer in renumbered}
        store_modules(model, ModuleMap(modules.modules, weights))
    return pack(model)


class _SharingBuilder(flatbuffers.Builder):  # type: ignore[misc]
    """A builder that writes a vector, string or table only the first time it is asked to."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._written: dict[Any, int] = {}

    def once(self, key: Any, write: Any) -> int:
        """Returns the offset of what ``write`` returned the first time ``key`` came."""
        if key not in self._written:
            self._written[key] = write()
        return self._written[key]

    def CreateNumpyVector(self, x: np.ndarray) -> int:  # noqa: N802 (the library's name)
        return self.once((x.dtype.str, x.tobytes()), lambda: super(_SharingBuilder, self).CreateNumpyVector(x))

    def CreateString(self, s: bytes | str, encoding: str = "utf-8", errors: str = "strict") -> int:  # noqa: N802
        return self.once((str, s), lambda: super(_SharingBuilder, self).CreateString(s, encoding, errors))


class _Shared:
    """Stands for a table object; packs it once per builder, whoever holds it."""

    def __init__(self, table: Any, key: Any) -> None:
        self._table = table
        self.key = key

    def Pack(self, builder: _SharingBuilder) -> int:  # noqa: N802 (the schema's name)
        return builder.once(self.key, lambda: self._table.Pack(builder))


class _AlignedBuffer:
    """A weight buffer whose data starts at a multiple of 16 bytes, which the Python schema leaves out."""

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def Pack(self, builder: _SharingBuilder) -> int:  # noqa: N802 (the schema's name)
        from ai_edge_litert import schema_py_generated as schema

        payload = self._data.tobytes()
        builder.StartVector(1, len(payload), _ALIGNMENT)
        builder.head -= len(payload)
        builder.Bytes[builder.head : builder.head + len(payload)] = payload
        vector = builder.EndVector()
        schema.BufferStart(builder)
        schema.BufferAddData(builder, vector)
        return int(schema.BufferEnd(builder))


def _share(model: Any) -> None:
    """Wraps the tables of ``model``, innermost first, so that equal ones are packed once."""
    for graph in model.subgraphs:
        graph.inputs = _ints(graph.inputs)
        graph.outputs = _ints(graph.outputs)
        graph.tensors = [_shared_tensor(tensor) for tensor in graph.tensors]
        graph.operators = [_shared_operator(operator) for operator in graph.operators]
    model.buffers = [
        buffer if buffer.data is None or not len(buffer.data) else _AlignedBuffer(np.asarray(buffer.data, np.uint8))
        for buffer in model.buffers
    ]


def _shared_tensor(tensor: Any) -> _Shared:
    tensor.shape = _ints(tensor.shape)
    tensor.shapeSignature = _ints(tensor.shapeSignature)
    if (table := tensor.quantization) is not None:
        # min and max describe how the scale was found; no runtime reads them.
        table.min = table.max = None
        table.scale = _array(table.scale, np.float32)
        table.zeroPoint = _array(table.zeroPoint, np.int64)
        empty = not _size(table.scale) and not _size(table.zeroPoint) and table.details is None
        tensor.quantization = None if empty else _shared(table)
    return _shared(tensor)


def _shared_operator(operator: Any) -> _Shared:
    operator.inputs = _ints(operator.inputs)
    operator.outputs = _ints(operator.outputs)
    operator.intermediates = _ints(operator.intermediates)
    operator.customOptions = _array(operator.customOptions, np.uint8)
    for name in ("builtinOptions", "builtinOptions2"):
        if (options := getattr(operator, name)) is not None:
            setattr(operator, name, _shared(options))
    return _shared(operator)


def _shared(table: Any) -> _Shared:
    return _Shared(table, _key(table))


def _key(value: Any) -> Any:
    """Returns a hashable value that is equal for tables of equal content."""
    if isinstance(value, _Shared):
        return value.key
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if hasattr(value, "Pack"):
        return (type(value).__name__, *((name, _key(field)) for name, field in sorted(vars(value).items())))
    return value


def _ints(values: Any) -> np.ndarray | None:
    return _array(values, np.int32)


def _array(values: Any, dtype: Any) -> np.ndarray | None:
    return None if values is None else np.asarray(values, dtype=dtype)


def _size(values: np.ndarray | None) -> int:
    return 0 if values is None else int(values.size)
