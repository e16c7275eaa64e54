"""A quantisation plan carried out on a clean FP32 graph."""

from __future__ import annotations

import onnx_ir as ir

from compressor.core.artifact import Precision
from compressor.core.errors import UsageError
from compressor.quantize.levels import weight_levels
from compressor.quantize.observers import Range
from compressor.quantize.plan import QuantizationPlan
from export.calibration import Calibration
from export.onnx.half import store_half
from export.onnx.int4 import quantize_blocks
from export.onnx.int8 import quantize_dynamic, quantize_static
from export.onnx.passes import GemmToMatMulPass, deduplicate
from export.onnx.policy import module_path, module_paths, trained_ranges, weight_nodes
from export.onnx.ranges import collect_ranges
from export.onnx.saturation import METADATA_KEY
from export.onnx.tables import quantize_tables
from export.policy import check_policy, require_reduction, stored_precision


def quantize(
    model: ir.Model, precision: Precision, plan: QuantizationPlan, calibration: Calibration | None = None
) -> dict[str, Range]:
    """Quantises a clean FP32 graph in place; returns the observed ranges of activations (none where dynamic).

    Modules planned in ``int8`` multiply in eight bits, in ``int4`` with block-wise 4-bit weights; lookup tables become
    eight bits where the plan says so. Modules planned in ``fp16`` store their weights in half precision and widen them
    as they are read; the rest stays FP32. A shared weight is quantised once.

    Args:
        model: the graph.
        precision: ``int8`` or ``int4``, the smallest that a module gets.
        plan: decides by module path.
        calibration: text for ``plan.method`` ``static``.

    Raises:
        UsageError: a pattern of the policy matches no module, every weight is left in FP32, or static calibration has
            no text.
        StageError: a weight planned in ``fp16`` does not fit half precision, or the model is not finite on the text.
    """
    check_policy(plan, module_paths(model))
    GemmToMatMulPass()(model)
    planned = {
        node: stored_precision(plan, module_path(node), precision)
        for node in weight_nodes(model, embeddings=plan.quantize_embeddings)
    }
    require_reduction(planned.values(), precision)
    products = {
        kind: [n for n, p in planned.items() if p == kind and n.op_type == "MatMul"] for kind in ("int8", "int4")
    }
    lookups = [node for node, p in planned.items() if p in products and node.op_type == "Gather"]
    ranges = _ranges(model, products["int8"], plan, calibration) if plan.method == "static" else {}
    store_half(model, {str(node.name) for node, p in planned.items() if p == "fp16"})
    levels = weight_levels(plan.reduced_range)
    quantize_tables(lookups)
    if plan.method == "static":
        quantize_static(products["int8"], ranges, levels=levels)
    else:
        quantize_dynamic(products["int8"], levels=levels)
    if products["int8"]:
        model.metadata_props[METADATA_KEY] = str(levels)
    quantize_blocks(model, products["int4"])
    deduplicate()(model)
    return ranges


def _ranges(
    model: ir.Model, products: list[ir.Node], plan: QuantizationPlan, calibration: Calibration | None
) -> dict[str, Range]:
    if calibration is None:
        raise UsageError(
            "static quantisation observes ranges of activations, and there is no calibration text; expected sentences "
            "like those the model will see",
            remedy="pass --calibrate FILE, or choose method dynamic",
        )
    inputs = [str(node.inputs[0].name) for node in products if node.inputs[0] is not None]
    found = collect_ranges(model, inputs, calibration, plan.observer)
    return {**found, **trained_ranges(products, plan)}
