"""What is found in the graph that a context was compiled from: how wide its weights and activations are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from compressor.core.artifact import ModelStatistics, Precision
from export.onnx import files
from export.onnx.inspection import statistics
from export.qnn.quantize import data_nodes

_GEMMS = frozenset({"MatMul", "Gemm"})
_SHARE = 0.9
_BITS = {ir.DataType.UINT8: 8, ir.DataType.INT8: 8, ir.DataType.UINT16: 16, ir.DataType.INT16: 16}


def statistics_of(plain: Path, compiled: Sequence[Path], lengths: tuple[int, ...]) -> ModelStatistics:
    """Returns the statistics of a plain graph, with the size of its compiled files where there are any.

    ``gemm_types`` counts matrix products by the bits of their quantised operands (``w8a16``, ``a16a16`` for two
    activations) or as float. ``precision`` follows the products with a stored weight, as everywhere: at least 90 % of
    their elements, else ``mixed``. A float graph is ``fp16`` once compiled: the NPU has no wider float.

    Raises:
        ArtifactError: the file is no whole ONNX model.
    """
    found = statistics(plain, "onnx-qnn")
    graph = files.load(plain)
    products: Counter[str] = Counter()
    elements: Counter[str] = Counter()
    computing = data_nodes(graph)  # DeBERTa's products of weights alone are constants once a length is fixed
    for node in graph.graph:
        if node.op_type in _GEMMS and node.name in computing:
            kind, size = _kind(node)
            products[kind] += 1
            elements[kind] += size
    name: Precision = "fp16" if compiled else "fp32"
    gemm_types = {name if kind == "float" else kind: count for kind, count in products.items()}
    return found.model_copy(
        update={
            "precision": _precision(elements, name),
            "gemm_types": gemm_types,
            "lengths": lengths,
            "size_bytes": sum(path.stat().st_size for path in compiled) or found.size_bytes,
        }
    )


def _precision(elements: Counter[str], float_name: Precision) -> Precision:
    total = sum(elements.values())
    found: tuple[tuple[str, Precision], ...] = (("w8a8", "w8a8"), ("w8a16", "w8a16"), ("float", float_name))
    return next((precision for kind, precision in found if total and elements[kind] >= _SHARE * total), "mixed")


def _kind(node: ir.Node) -> tuple[str, int]:
    """Returns the operands of a product as ``w8a16`` and the elements of its stored weight (0: two activations)."""
    stored = [_behind_dequantize(value) for value in node.inputs[:2]]
    size = max(_size(value) for value in (*node.inputs[:2], *(item for item, _ in stored)))
    if any(bits is None for _, bits in stored):
        return "float", size
    weights_first = sorted(stored, key=lambda item: _size(item[0]) == 0)
    return "".join(f"{'w' if _size(value) else 'a'}{bits}" for value, bits in weights_first), size


def _behind_dequantize(value: ir.Value | None) -> tuple[ir.Value | None, int | None]:
    """Returns what a DequantizeLinear reads and its bits; the value itself and None where there is no such operator."""
    producer = None if value is None else value.producer()
    if producer is None or producer.op_type != "DequantizeLinear":
        return value, None
    zero = producer.inputs[2] if len(producer.inputs) > 2 else None
    known = [tensor.dtype for item in (zero, producer.inputs[0]) if item is not None and (tensor := item.const_value)]
    return producer.inputs[0], _BITS.get(known[0]) if known else None


def _size(value: ir.Value | None) -> int:
    tensor = None if value is None else value.const_value
    return int(tensor.size) if tensor is not None and len(tensor.shape) > 1 else 0
