"""ONNX files on the disk: weights are written from where they lie and mapped when read, never copied whole.

Protobuf's own writer and reader hold a model several times over in memory (message, bytes, copies of both), which for
a gigabyte of weights costs more time than tracing the model. An ONNX file is a sequence of tagged fields
(https://protobuf.dev/programming-guides/encoding, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto), so the
large ``raw_data`` fields are stepped over here, and protobuf sees the rest.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
import onnx_ir as ir

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Field numbers: ``ModelProto.graph``, ``GraphProto.initializer``, ``TensorProto.raw_data``."""
_BYTES = 2
"""Wire type of everything that states its own length."""
_FIXED = {1: 8, 5: 4}
"""Wire types of fixed size, and their bytes."""
STREAMED_BYTES = 16 * 1024
"""Tensors from this size on stay in the file; it is also what a copy of them would begin to cost."""
_MAPPED = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8,
                     ir.DataType.INT32, ir.DataType.INT64})  # fmt: skip
"""Types whose bytes numpy reads as they are."""


@dataclass(frozen=True)
class Skeleton:
    """An ONNX file without its large weights."""

    proto: onnx.ModelProto
    """Everything else; the initializers in ``places`` have no data."""
    places: dict[str, tuple[int, int]]
    """Name of an initializer to offset and length of its data in the file, both in bytes."""


def read(path: Path) -> ir.Model:
    """Reads an ONNX file; large weights are mapped into memory and read when they are used.

    Raises:
        ValueError: the file is no whole ONNX model.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    skeleton = _skeleton(content)
    model = ir.serde.deserialize_model(skeleton.proto)
    for name, (offset, length) in skeleton.places.items():
        value = model.graph.initializers[name]
        if value.const_value is None or value.const_value.nbytes != length:
            raise ValueError(f"initializer '{name}' is cut short")
        value.const_value = _mapped(content, offset, value.const_value)
    return model


def skeleton(path: Path) -> Skeleton:
    """Reads everything but large weights.

    Raises:
        ValueError: the file is no whole ONNX model.
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return _skeleton(content)


def write(model: ir.Model, path: Path) -> None:
    """Writes a model as one file, each large weight straight from where it lies.

    The file takes its place when it is whole: the model's own weights may be mapped from the one it replaces.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        _stream(model, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _stream(model: ir.Model, path: Path) -> None:
    with _taken_out(model) as large, path.open("wb") as stream:
        proto = ir.serde.serialize_model(model)
        graph = proto.graph.SerializeToString()
        proto.ClearField("graph")
        heads = [_tensor_head(name, tensor) for name, tensor in large]
        sizes = [len(head) + tensor.nbytes for head, (_, tensor) in zip(heads, large, strict=True)]
        tags = [_field(_INITIALIZER, size) for size in sizes]
        stream.write(proto.SerializeToString())
        stream.write(_field(_GRAPH, len(graph) + sum(map(len, tags)) + sum(sizes)))
        stream.write(graph)
        for tag, head, (_, tensor) in zip(tags, heads, large, strict=True):
            stream.write(tag)
            stream.write(head)
            _write_data(tensor, stream)


@contextmanager
def _taken_out(model: ir.Model) -> Iterator[list[tuple[str, ir.TensorProtocol]]]:
    """Takes the large weights, and those that lie in another file, out of the graph while the block runs."""
    graph = model.graph
    values = [
        value
        for value in graph.initializers.values()
        if value.const_value is not None
        and (value.const_value.nbytes >= STREAMED_BYTES or isinstance(value.const_value, ir.ExternalTensor))
    ]
    large = [(str(value.name), value.const_value) for value in values if value.const_value is not None]
    try:
        for name, _ in large:
            del graph.initializers[name]
        yield large
    finally:
        for value in values:
            graph.initializers.add(value)


def _tensor_head(name: str, tensor: ir.TensorProtocol) -> bytes:
    """Returns a TensorProto up to and including the length of its data."""
    head = onnx.TensorProto(name=name, data_type=int(tensor.dtype), dims=tensor.shape.numpy())
    content: bytes = head.SerializeToString()
    return content + _field(_RAW_DATA, tensor.nbytes)


def _write_data(tensor: ir.TensorProtocol, stream: BinaryIO) -> None:
    array = tensor.numpy()
    if tensor.dtype in _MAPPED and array.dtype.isnative and array.flags.c_contiguous and np.little_endian:
        stream.write(array.data)
    else:
        stream.write(tensor.tobytes())


def _mapped(content: mmap.mmap, offset: int, tensor: ir.TensorProtocol) -> ir.LazyTensor:
    shape, dtype = tensor.shape.numpy(), tensor.dtype

    def load() -> ir.TensorProtocol:
        array = np.frombuffer(content, dtype.numpy(), count=tensor.size, offset=offset)
        return ir.tensor(array.reshape(shape), dtype=dtype, name=tensor.name)

    return ir.LazyTensor(load, dtype=dtype, shape=ir.Shape(shape), name=tensor.name)


def _skeleton(content: mmap.mmap) -> Skeleton:
    size = len(content)
    places: dict[str, tuple[int, int]] = {}
    outer, graph = bytearray(), bytearray()
    for number, start, data, end in _fields(content, 0, size):
        if number != _GRAPH:
            outer += content[start:end]
            continue
        for inner, inner_start, inner_data, inner_end in _fields(content, data, end):
            if inner != _INITIALIZER or inner_end - inner_data < STREAMED_BYTES:
                graph += content[inner_start:inner_end]
                continue
            tensor, place = _without_data(content, inner_data, inner_end)
            if place is not None:
                places[onnx.TensorProto.FromString(tensor).name] = place
            graph += _field(_INITIALIZER, len(tensor)) + tensor
    try:
        proto = onnx.ModelProto.FromString(bytes(outer))
        proto.graph.ParseFromString(bytes(graph))
    except Exception as error:  # protobuf's DecodeError has no public base class
        raise ValueError(str(error)) from error
    return Skeleton(proto, places)


def _without_data(content: mmap.mmap, start: int, end: int) -> tuple[bytes, tuple[int, int] | None]:
    """Returns a TensorProto without ``raw_data`` and where that lies; the whole of it where numpy cannot read it."""
    kept, place = bytearray(), None
    for number, field, data, stop in _fields(content, start, end):
        if number == _RAW_DATA:
            place = (data, stop - data)
        else:
            kept += content[field:stop]
    tensor = onnx.TensorProto.FromString(bytes(kept))
    if place is None or ir.DataType(tensor.data_type) not in _MAPPED:
        return content[start:end], None
    # An empty field in place of the data: without one, the data would be looked for elsewhere.
    return bytes(kept) + _field(_RAW_DATA, 0), place


def _fields(content: mmap.mmap, position: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (number, start, start of the content, end) of each field between two positions."""
    while position < end:
        start = position
        tag, position = _varint(content, position, end)
        kind = tag & 7
        if kind == _BYTES:
            length, position = _varint(content, position, end)
            data, position = position, position + length
        elif kind in _FIXED:
            data, position = position, position + _FIXED[kind]
        elif kind == 0:
            data = position
            _, position = _varint(content, position, end)
        else:
            raise ValueError(f"byte {start} starts no field of a model")
        if position > end:
            raise ValueError("the file is cut short")
        yield tag >> 3, start, data, position


def _varint(content: mmap.mmap, position: int, end: int) -> tuple[int, int]:
    """Returns a number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while position < end and shift < 70:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("the file is cut short")


def _field(number: int, length: int) -> bytes:
    """Returns the tag and length that come before the content of a field."""
    written = bytearray()
    for value in (number << 3 | _BYTES, length):
        while value >= 0x80:
            written.append(value & 0x7F | 0x80)
            value >>= 7
        written.append(value)
    return bytes(written)
