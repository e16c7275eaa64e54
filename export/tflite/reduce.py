"""Half-precision and 8-bit children of an FP32 file, by ai-edge-quantizer, under a policy of module paths."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from compressor.core.artifact import Precision
from compressor.core.errors import UsageError, nearest
from compressor.quantize.plan import QuantizationPlan
from export.tflite.compact import compact, merge_buffers, pack
from export.tflite.flatbuffer import LOOKUPS, WeightUse, parse, text, weight_uses
from export.tflite.modules import ModuleMap, load_modules
from export.tflite.quiet import quiet_native

_SEPARATOR = "|"
"""Between precision, module path and a number in a working tensor name; no module path contains it."""


def reduce_model(converted: Any, precision: Precision, plan: QuantizationPlan) -> bytes:
    """Returns the content of a lower-precision file.

    FP16 stores weights in half precision and restores them as the file is loaded (``DEQUANTIZE``), which every runtime
    knows. INT8 is dynamic: symmetric weights with one scale per output channel, activations quantised as they come
    (https://ai.google.dev/edge/litert, "dynamic range quantization").

    Args:
        converted: the ``ModelT`` of a file that :func:`export.tflite.convert.convert_model` made; it is used up.
        precision: ``fp16`` or ``int8``.
        plan: decides by module path; with ``fp16``, modules the plan leaves at ``fp32`` stay there.

    Raises:
        UsageError: a rule of the policy matches no module, or nothing is left to reduce.
        ArtifactError: the file does not name its modules.
    """
    modules = load_modules(converted)
    check_policy(plan, modules)
    counts = _name_by_precision(converted, modules, precision, plan)
    if not counts:
        raise UsageError(
            f"the plan leaves every weight in fp32, so there is nothing to store as {precision}",
            remedy="widen the policy or export fp32",
        )
    merge_buffers(converted)
    with quiet_native():
        reduced = parse(_quantize(pack(converted), counts))
    return compact(reduced, ModuleMap(modules.modules, _weights_by_name(reduced)))


def check_policy(plan: QuantizationPlan, modules: ModuleMap) -> None:
    """Raises UsageError for a rule that matches none of the model's modules, naming the nearest path."""
    for rule in plan.policy:
        if not any(fnmatchcase(path, rule.pattern) for path in modules.modules):
            raise UsageError(
                f"the quantisation rule '{rule.pattern}' matches no module of this model",
                remedy=nearest(rule.pattern, modules.modules),
            )


def _name_by_precision(converted: Any, modules: ModuleMap, precision: Precision, plan: QuantizationPlan) -> set[str]:
    """Names each tensor so that the quantizer's patterns can tell what becomes of the operator that writes it."""
    number = 0
    for graph in converted.subgraphs:
        for tensor in graph.tensors:
            tensor.name = f"fp32{_SEPARATOR}{_SEPARATOR}{number}".encode()
            number += 1
    wanted = set()
    for use in weight_uses(converted):
        path = modules.weights.get(use.buffer, "")
        chosen = _precision_of(use, path, precision, plan)
        wanted.add(chosen)
        tensor = converted.subgraphs[use.subgraph].tensors[int(use.operator.outputs[0])]
        tensor.name = f"{chosen}{_SEPARATOR}{path}{_SEPARATOR}{number}".encode()
        number += 1
    return wanted - {"fp32"}


def _precision_of(use: WeightUse, path: str, precision: Precision, plan: QuantizationPlan) -> str:
    planned = plan.precision_of(path)
    if planned == "fp32" or precision == "fp16":
        return "fp32" if planned == "fp32" else "fp16"
    if use.name in LOOKUPS and not plan.quantize_embeddings:
        return "fp32"
    return planned


def _quantize(content: bytes, precisions: set[str]) -> bytes:
    from ai_edge_quantizer import qtyping, quantizer
    from ai_edge_quantizer.algorithm_manager import AlgorithmName

    worker = quantizer.Quantizer(bytearray(content))
    everything = qtyping.TFLOperationName.ALL_SUPPORTED
    if "int8" in precisions:
        worker.add_dynamic_config(regex=r"^int8\|", operation_name=everything, num_bits=8)
    if "fp16" in precisions:
        worker.add_weight_only_config(
            regex=r"^fp16\|", operation_name=everything, num_bits=16, algorithm_key=AlgorithmName.FLOAT_CASTING
        )
    result = worker.quantize(enable_progress_bar=False, enable_progress_report=False)
    return bytes(result.quantized_model)


def _weights_by_name(reduced: Any) -> dict[int, str]:
    """Returns the module path of every weight's buffer, from the working names of the operators that read it."""
    found: dict[int, str] = {}
    for use in weight_uses(reduced):
        output = reduced.subgraphs[use.subgraph].tensors[int(use.operator.outputs[0])]
        _, _, rest = text(output.name).partition(_SEPARATOR)
        path = rest.rpartition(_SEPARATOR)[0]
        if path:
            found[use.buffer] = path
    return found
