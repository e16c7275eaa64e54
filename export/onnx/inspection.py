"""What is in an ONNX file, whoever made it: precision as found, unique bytes, operators."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from compressor.core.artifact import Format, ModelStatistics, Precision
from compressor.core.errors import ArtifactError
from export.onnx import files

_FLOAT_GEMMS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Conv", "Attention"})
_INT8_GEMMS = frozenset(
    {
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
        "QLinearMatMul",
        "QGemm",
        "QAttention",
        "ConvInteger",
        "QLinearConv",
    }
)
_INT4_GEMMS = frozenset({"MatMulNBits"})
_THROUGH = frozenset({"Identity", "Transpose", "Cast", "Reshape", "DequantizeLinear", "QuantizeLinear"})
_TYPE_NAMES = {
    ir.DataType.FLOAT: "fp32",
    ir.DataType.FLOAT16: "fp16",
    ir.DataType.BFLOAT16: "bf16",
    ir.DataType.DOUBLE: "fp64",
}
_SHARE = 0.9
"""A file is called after a precision when at least this share of its weights has it."""


def statistics(path: Path, format_name: Format = "onnx") -> ModelStatistics:
    """Reads a model file and says what it holds.

    ``gemm_types`` counts every matrix product by the type it multiplies in, products of two activations included.
    ``precision`` is decided by the products with a stored weight, each unique weight counted by its elements: ``int8``
    (``int4``) where at least 90 % of them are multiplied in eight (from four) bits, however tables and vectors are
    stored; ``fp32`` or
    ``fp16`` where at least 90 % are multiplied in that type and 90 % of all parameters are stored in it; else
    ``mixed``. Eight-bit weights that are widened before a float product are therefore no ``int8``.

    Raises:
        ArtifactError: the file is no whole ONNX model.
    """
    model = files.load(path)
    try:
        unique = _unique_tensors(model)
        _infer(model)
        gemm_types, weighted = _gemms(model)
        by_type: Counter[str] = Counter()
        for tensor in unique:
            by_type[_stored_type(tensor)] += tensor.nbytes
        operators = Counter(node.op_type for node in model.graph)
        return ModelStatistics(
            format=format_name,
            precision=_precision(weighted, unique),
            size_bytes=files.stored_bytes(path),
            unique_parameter_bytes=sum(tensor.nbytes for tensor in unique),
            parameters=sum(tensor.size for tensor in unique) + _packed_away(model),
            lengths=_lengths(model),
            operators=dict(sorted(operators.items())),
            gemm_types=dict(gemm_types),
            operator_types=_operator_types(model),
            parameter_bytes=dict(sorted(by_type.items())),
            opset=files.opset_of(model),
        )
    except (ValueError, TypeError, OSError) as error:
        raise ArtifactError(f"{path} cannot be read as a whole: {error}", remedy="copy the file again") from error


def gemm_nodes(path: Path) -> dict[str, str]:
    """Returns {node name: type it multiplies in, e.g. ``fp16``} of the float matrix products (MatMul, Gemm) of a file.

    Raises:
        ArtifactError: the file is no whole ONNX model.
    """
    model = files.load(path)
    _infer(model)
    return {str(node.name): _gemm_type(node) for node in model.graph if node.op_type in ("MatMul", "Gemm")}


def _infer(model: ir.Model) -> None:
    """Fills in missing types; other makers' operators end the inference, and types known so far are kept."""
    try:
        common.ShapeInferencePass(check_type=False, strict_mode=False)(model)
    except (RuntimeError, ValueError):
        return


def _unique_tensors(model: ir.Model) -> list[ir.TensorProtocol]:
    """Stored weights (float, or 8 and 4-bit integers), a copy or a transposed copy of another one left out."""
    found: dict[tuple[str, str], ir.TensorProtocol] = {}
    for tensor in _stored(model):
        if tensor.dtype.is_floating_point() or (tensor.dtype.bitwidth <= 8 and tensor.dtype is not ir.DataType.BOOL):
            array = tensor.numpy()
            digest = min(_digest(array), _digest(array.T)) if array.ndim == 2 else _digest(array)
            found.setdefault((tensor.dtype.name, digest), tensor)
    return list(found.values())


def _stored(model: ir.Model) -> Iterator[ir.TensorProtocol]:
    for value in model.graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value
    for node in model.graph:
        attribute = node.attributes.get("value")
        if node.op_type == "Constant" and attribute is not None and attribute.type is ir.AttributeType.TENSOR:
            yield attribute.as_tensor()


def _digest(array: np.ndarray) -> str:
    content = hashlib.sha1(np.ascontiguousarray(array).tobytes(), usedforsecurity=False)
    return f"{array.shape}{content.hexdigest()}"


def _gemms(model: ir.Model) -> tuple[Counter[str], Counter[str]]:
    """Returns the matrix products by type, and the elements of their unique stored weights by type."""
    nodes: Counter[str] = Counter()
    weights: dict[tuple[str, str], int] = {}
    for node in model.graph:
        if node.op_type not in _FLOAT_GEMMS | _INT8_GEMMS | _INT4_GEMMS:
            continue
        kind = _gemm_type(node)
        nodes[kind] += 1
        if node.op_type in _INT4_GEMMS and node.inputs[1] is not None:
            weights[(str(node.inputs[1].name), kind)] = _packed_size(node)
            continue
        for value in node.inputs:
            weight = _weight_behind(value)
            if weight is not None and weight.const_value is not None and len(weight.const_value.shape) >= 2:
                weights[(str(weight.name), kind)] = weight.const_value.size
    elements: Counter[str] = Counter()
    for (_, kind), size in weights.items():
        elements[kind] += size
    return nodes, elements


def _packed_size(node: ir.Node) -> int:
    """Weights in a MatMulNBits node, whose bytes hold several each."""
    return node.attributes.get_int("K", 0) * node.attributes.get_int("N", 0)


def _packed_away(model: ir.Model) -> int:
    """How many more weights the packed matrices hold than they have bytes, each matrix counted once."""
    packed = {
        value: _packed_size(node) - value.const_value.size
        for node in model.graph
        if node.op_type in _INT4_GEMMS and (value := node.inputs[1]) is not None and value.const_value is not None
    }
    return sum(packed.values())


def _operator_types(model: ir.Model) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for node in model.graph:
        if node.op_type in _INT4_GEMMS:
            found.setdefault(node.op_type, Counter())["int4"] += 1
        elif node.op_type in _FLOAT_GEMMS | _INT8_GEMMS | {"Gather"}:
            weights = [weight.const_value for value in node.inputs if (weight := _weight_behind(value)) is not None]
            for tensor in weights:
                if tensor is not None and len(tensor.shape) >= 2 and tensor.dtype is not ir.DataType.INT64:
                    found.setdefault(node.op_type, Counter())[_stored_type(tensor)] += 1
    return {name: dict(sorted(types.items())) for name, types in sorted(found.items())}


def _stored_type(tensor: ir.TensorProtocol) -> str:
    return _TYPE_NAMES.get(tensor.dtype, tensor.dtype.name.lower())


def _gemm_type(node: ir.Node) -> str:
    if node.op_type in _INT4_GEMMS:
        return f"int{node.attributes.get_int('bits', 4)}"
    if node.op_type in _INT8_GEMMS:
        return "int8"
    operands = [value for value in node.inputs[:2] if value is not None]
    producers = [value.producer() for value in operands]
    if all(producer is not None and producer.op_type == "DequantizeLinear" for producer in producers):
        return "int8"
    dtypes = [value.dtype or (value.const_value.dtype if value.const_value is not None else None) for value in operands]
    known = next((dtype for dtype in dtypes if dtype is not None), None)
    return _TYPE_NAMES.get(known, "unknown") if known is not None else "unknown"


def _weight_behind(value: ir.Value | None) -> ir.Value | None:
    while value is not None and value.const_value is None:
        producer = value.producer()
        if producer is None or producer.op_type not in _THROUGH:
            return None
        value = producer.inputs[0]
    return value


def _precision(weighted: Counter[str], unique: list[ir.TensorProtocol]) -> Precision:
    elements = sum(tensor.size for tensor in unique)
    total = sum(weighted.values())
    for quantized in ("int8", "int4"):
        if total and weighted[quantized] >= _SHARE * total:
            return "int8" if quantized == "int8" else "int4"
    for name, dtype in (("fp32", ir.DataType.FLOAT), ("fp16", ir.DataType.FLOAT16)):
        stored = sum(tensor.size for tensor in unique if tensor.dtype is dtype)
        computed = weighted[name] >= _SHARE * total
        if computed and stored >= _SHARE * elements:
            return "fp32" if name == "fp32" else "fp16"
    return "mixed"


def _lengths(model: ir.Model) -> tuple[int, ...]:
    found = {
        value.shape[1]
        for value in model.graph.inputs
        if value.shape is not None and len(value.shape) == 2 and isinstance(value.shape[1], int)
    }
    return tuple(sorted(found))
