"""INT8 for TensorRT: which products become eight bits, their ranges, and the graph with Q/DQ in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from compressor.core.artifact import Precision
from compressor.core.errors import StageError, UsageError
from compressor.quantize.observers import Range
from compressor.quantize.plan import QuantizationPlan
from export.calibration import Calibration
from export.onnx.half_audit import HalfAudit, audited_half
from export.onnx.passes import deduplicate
from export.onnx.policy import module_path, module_paths, trained_ranges, weight_nodes
from export.onnx.ranges import collect_ranges
from export.policy import check_policy, stored_precision
from export.tensorrt.qdq import Product, QdqInserter, product_of

TYPED_OPSET = 19
"""The first in which Q/DQ take half-precision scales, so that eight bits turn into half with no FP32 between."""


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """What of a graph becomes eight bits, and with which ranges."""

    products: Mapping[str, Product]
    """By name of the node."""
    ranges: Mapping[str, Range]
    """By name of the activation in the FP32 graph."""
    weights: Mapping[str, np.ndarray]
    """FP32 values by name."""
    tables: Mapping[str, str]
    """Embedding tables to store in int8: {name of the Gather: name of the table}."""
    full: frozenset[str]
    """Names of the nodes that the policy keeps in FP32."""


def plan_int8(model: ir.Model, plan: QuantizationPlan, calibration: Calibration) -> Quantized:
    """Decides by policy which products of a clean FP32 graph become INT8, and observes their inputs on real text.

    A product is quantised when the plan gives its module ``int8``; ``fp16`` leaves it in half precision and ``fp32``
    (or no rule) in an FP32 island. Products of two activations (scores, context) stay in half precision: they hold no
    weight, and a fused attention needs them so. Embedding tables become int8 where the plan says so.

    Raises:
        UsageError: a pattern that matches no module, no product left to quantise, or no calibration text.
        StageError: an activation that is not finite on the calibration text.
        DataError: calibration text with ids that the model does not have.
    """
    check_policy(plan, module_paths(model))
    planned = {
        str(node.name): stored_precision(plan, module_path(node), "int8")
        for node in weight_nodes(model, embeddings=True)
    }
    products = {
        product.node: product
        for node in model.graph
        if (product := product_of(node)) is not None and planned.get(product.node) == "int8"
    }
    if not products:
        raise UsageError(
            "the plan leaves no matrix product in int8, so there is nothing to quantise",
            remedy="widen the policy, or export fp16",
        )
    tables = {
        str(node.name): str(node.inputs[0].name)  # type: ignore[union-attr]
        for node in weight_nodes(model, embeddings=plan.quantize_embeddings)
        if node.op_type == "Gather" and planned.get(str(node.name)) == "int8" and _is_matrix(node.inputs[0])
    }
    activations = list(dict.fromkeys(product.activation for product in products.values()))
    ranges = collect_ranges(model, activations, calibration, plan.observer, symmetric=True)
    ranges |= trained_ranges([node for node in model.graph if str(node.name) in products], plan)
    return Quantized(
        products=products,
        ranges=ranges,
        tables=tables,
        weights={name: _values(model, name) for name in (*(p.weight for p in products.values()), *tables.values())},
        full=kept_full(model, plan, "int8"),
    )


def kept_full(model: ir.Model, plan: QuantizationPlan, precision: Precision) -> frozenset[str]:
    """Returns the names of the nodes that the policy keeps in FP32 in a file of ``precision``."""
    return frozenset(
        str(node.name) for node in model.graph if stored_precision(plan, module_path(node), precision) == "fp32"
    )


def quantize_typed(model: ir.Model, quantized: Quantized, calibration: Calibration) -> HalfAudit:
    """Turns a clean FP32 graph into a strongly typed one in place: INT8 products, half precision, FP32 islands.

    Returns:
        What was measured around the half-precision part, and the nodes that stay FP32 because of it.

    Raises:
        StageError: half arithmetic overflows on the calibration text, or a weight does not fit half precision.
    """
    audit = audited_half(model, calibration, lambda node: str(node.name) in quantized.full)
    model.graph.opset_imports[""] = TYPED_OPSET
    insert_qdq(model, quantized, store_int8=True)
    return audit


def insert_qdq(model: ir.Model, quantized: Quantized, *, store_int8: bool) -> None:
    """Puts Q/DQ before every quantised product, in place; a weight that several products share is stored once.

    Args:
        model: the graph, float types already decided.
        quantized: from :func:`plan_int8`.
        store_int8: store weights and tables in int8; TensorRT 8 quantises FP32 weights itself, and has FP32 tables.
    """
    inserter = QdqInserter(model, quantized.weights, store_int8=store_int8)
    for node in list(model.graph):
        product = quantized.products.get(str(node.name))
        if product is not None:
            inserter.insert(node, product, quantized.ranges[product.activation])
        elif store_int8 and str(node.name) in quantized.tables:
            inserter.insert_table(node, quantized.tables[str(node.name)])
    deduplicate()(model)
    common.TopologicalSortPass()(model)


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and len(value.const_value.shape) == 2


def _values(model: ir.Model, name: str) -> np.ndarray:
    tensor = model.graph.initializers[name].const_value
    if tensor is None:
        raise StageError(f"'{name}' holds no values", remedy="report this model")
    return np.asarray(tensor.numpy(), dtype=np.float32)
