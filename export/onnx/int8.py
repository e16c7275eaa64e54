"""Dynamic INT8: weights quantised in the file, activations at run time by ONNX Runtime's operators."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common

from compressor.quantize.plan import QuantizationPlan
from export.onnx import files
from export.onnx.half import store_half
from export.onnx.passes import GemmToMatMulPass, deduplicate
from export.onnx.policy import module_path, module_paths, weight_nodes
from export.onnx.quiet import root_errors_only
from export.policy import check_policy, require_reduction, stored_precision

_OPERATORS = frozenset({"MatMul", "Gather"})


def quantize_dynamic(model: ir.Model, plan: QuantizationPlan) -> ir.Model:
    """Returns the INT8 form of a clean FP32 graph.

    Weights become symmetric int8, one scale a column; activations uint8, because x86 kernels for two signed operands
    are many times slower. Embedding tables become 8-bit where the plan says so. Modules planned in ``fp16`` store their
    weights in half precision and widen them as they are read; the rest stays FP32. A shared weight is quantised once.

    Raises:
        UsageError: a pattern of the policy matches no module, or every weight is left in FP32.
        StageError: a weight planned in ``fp16`` does not fit half precision.
    """
    check_policy(plan, module_paths(model))
    GemmToMatMulPass()(model)
    planned = {
        str(node.name): stored_precision(plan, module_path(node), "int8")
        for node in weight_nodes(model, embeddings=plan.quantize_embeddings)
    }
    require_reduction(planned.values(), "int8")
    eight_bit = {
        str(node.name)
        for node in weight_nodes(model, embeddings=True)
        if node.op_type in _OPERATORS and planned.get(str(node.name)) == "int8"
    }
    store_half(model, {name for name, precision in planned.items() if precision == "fp16"})
    return _quantize(model, eight_bit) if eight_bit else model


def _quantize(model: ir.Model, nodes: set[str]) -> ir.Model:
    """Returns ``model`` with the weights of ``nodes`` (names) in eight bits."""
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as quantize

    with tempfile.TemporaryDirectory() as name, root_errors_only("onnxruntime"):
        source, target = Path(name) / "fp32.onnx", Path(name) / "int8.onnx"
        files.save(model, source)
        large = len(files.model_files(source)) > 1
        quantize(
            str(source),
            str(target),
            op_types_to_quantize=sorted(_OPERATORS),
            nodes_to_quantize=sorted(nodes),
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=large,
            extra_options={"MatMulConstBOnly": True},
        )
        quantized = files.load(target)
        ir.external_data.load_to_model(quantized)
    deduplicate()(quantized)
    common.RemoveUnusedOpsetsPass()(quantized)
    return quantized
