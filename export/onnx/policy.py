"""From module paths, of which a quantisation plan speaks, to the nodes of a traced graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from compressor.quantize.observers import Range
from compressor.quantize.plan import QuantizationPlan

WRAPPED = "model"
"""Attribute of the traced wrapper that holds the model: the first part of every node's scope."""

WEIGHT_GEMMS = frozenset({"MatMul", "Gemm", "Conv"})


def module_path(node: ir.Node) -> str:
    """Returns the dotted path of the module that a node came from, e.g. ``bert.encoder.layer.0.output.dense``.

    The tracer names a node ``/model/bert/encoder/layer.0/output/dense/MatMul``; the first part is the wrapper's.
    """
    parts = str(node.name).strip("/").split("/")[:-1]
    return ".".join(parts[1:] if parts[:1] == [WRAPPED] else parts)


def weight_nodes(model: ir.Model, *, embeddings: bool) -> Iterator[ir.Node]:
    """Yields the nodes that apply a stored float weight: MatMul, Gemm and Conv, and lookups in embedding tables."""
    for node in model.graph:
        if (node.op_type in WEIGHT_GEMMS and any(_is_weight(value) for value in node.inputs[:2])) or (
            embeddings and node.op_type == "Gather" and _is_weight(node.inputs[0])
        ):
            yield node


def module_paths(model: ir.Model) -> frozenset[str]:
    """Returns the modules that hold a weight matrix of their own.

    Most are found by the nodes that apply their weights. A matrix that something else is computed from first (DeBERTa
    normalises its relative positions) keeps its parameter's name, ``model.deberta.encoder.rel_embeddings.weight``.
    """
    applied = {module_path(node) for node in weight_nodes(model, embeddings=True)}
    prefix = f"{WRAPPED}."
    named = {
        str(value.name).removeprefix(prefix).rpartition(".")[0]
        for value in model.graph.initializers.values()
        if str(value.name).startswith(prefix) and _is_weight(value)
    }
    return frozenset((applied | named) - {""})


def _is_weight(value: ir.Value | None) -> bool:
    tensor = None if value is None else value.const_value
    return tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape) >= 2


def trained_ranges(products: Iterable[ir.Node], plan: QuantizationPlan) -> dict[str, Range]:
    """Returns what training found for the activations that products read, by the tensor's name; see ``plan.ranges``."""
    return {
        str(node.inputs[0].name): Range(*plan.ranges[path].input, observer="training")
        for node in products
        if (path := module_path(node)) in plan.ranges and node.op_type != "Gather" and node.inputs[0] is not None
    }
