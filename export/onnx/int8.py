"""Dynamic INT8: weights quantised in the file, activations at run time by ONNX Runtime's operators."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common

from compressor.core.errors import UsageError
from compressor.quantize.plan import QuantizationPlan
from export.onnx import files
from export.onnx.passes import GemmToMatMulPass, deduplicate
from export.onnx.policy import check_patterns, module_path, weight_nodes
from export.onnx.quiet import errors_only

_OPERATORS = frozenset({"MatMul", "Gather"})


def quantize_dynamic(model: ir.Model, plan: QuantizationPlan) -> ir.Model:
    """Returns the INT8 form of a clean FP32 graph.

    Weights become symmetric int8, one scale a column; activations uint8, because x86 kernels for two signed operands
    are many times slower. Embedding tables become 8-bit where the plan says so. Modules whose last rule says another
    precision stay FP32. A shared weight is quantised once.

    Raises:
        UsageError: a pattern of the policy matches no module, or no module is left to quantise.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization import quantize_dynamic as quantize

    check_patterns(plan, model)
    GemmToMatMulPass()(model)
    chosen = [
        str(node.name)
        for node in weight_nodes(model, embeddings=plan.quantize_embeddings)
        if node.op_type in _OPERATORS and plan.precision_of(module_path(node)) == "int8"
    ]
    if not chosen:
        raise UsageError(
            "the policy leaves no module to quantise; expected at least one rule with precision int8 that matches",
            remedy="change the policy, or ask for another precision",
        )
    with tempfile.TemporaryDirectory() as name, errors_only(None):
        source, target = Path(name) / "fp32.onnx", Path(name) / "int8.onnx"
        files.save(model, source)
        large = len(files.model_files(source)) > 1
        quantize(
            str(source),
            str(target),
            op_types_to_quantize=sorted(_OPERATORS),
            nodes_to_quantize=chosen,
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
