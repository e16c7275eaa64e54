"""Half-precision and 8-bit children of an FP32 file, under a policy of module paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import count
from typing import Any

from compressor.core.artifact import Precision
from compressor.core.errors import UsageError, nearest
from compressor.quantize.plan import QuantizationPlan
from export.tflite.compact import compact, merge_buffers, pack
from export.tflite.flatbuffer import LOOKUPS, WeightUse, parse, text, weight_uses
from export.tflite.half import store_half
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
    chosen = {use.buffer: _precision_of(use, modules, precision, plan) for use in weight_uses(converted)}
    if set(chosen.values()) <= {"fp32"}:
        raise UsageError(
            f"the plan leaves every weight in fp32, so there is nothing to store as {precision}",
            remedy="widen the policy or export fp32",
        )
    _name_by_precision(converted, modules, chosen)
    if "int8" in chosen.values():
        merge_buffers(converted)
        with quiet_native():
            converted = parse(_quantize(pack(converted)))
    half = [(use, path) for use in weight_uses(converted) if (path := _named(converted, use, "fp16")) is not None]
    store_half(converted, half)
    weights = {use.buffer: _named(converted, use) or "" for use in weight_uses(converted)}
    return compact(converted, ModuleMap(modules.modules, weights))


def check_policy(plan: QuantizationPlan, modules: ModuleMap) -> None:
    """Raises UsageError for a rule that matches none of the model's modules, naming the nearest path."""
    for rule in plan.policy:
        if not any(fnmatchcase(path, rule.pattern) for path in modules.modules):
            raise UsageError(
                f"the quantisation rule '{rule.pattern}' matches no module of this model",
                remedy=nearest(rule.pattern, modules.modules),
            )


def _precision_of(use: WeightUse, modules: ModuleMap, precision: Precision, plan: QuantizationPlan) -> str:
    planned = plan.precision_of(modules.weights.get(use.buffer, ""))
    if planned == "fp32" or precision == "fp16":
        return "fp32" if planned == "fp32" else "fp16"
    if use.name in LOOKUPS and not plan.quantize_embeddings:
        return "fp32"
    return planned


def _name_by_precision(converted: Any, modules: ModuleMap, chosen: Mapping[int, str]) -> None:
    """Names every tensor: the quantizer needs distinct names, and decides by the name of what an operator writes."""
    numbers = count()
    for graph in converted.subgraphs:
        for tensor in graph.tensors:
            tensor.name = _SEPARATOR.join(("fp32", "", str(next(numbers)))).encode()
    for use in weight_uses(converted):
        path = modules.weights.get(use.buffer, "")
        _output(converted, use).name = _SEPARATOR.join((chosen[use.buffer], path, str(next(numbers)))).encode()


def _named(converted: Any, use: WeightUse, precision: str | None = None) -> str | None:
    """Returns the module path in an operator's working name, or None where it is named for another precision."""
    found, path, _ = text(_output(converted, use).name).split(_SEPARATOR, 2)
    return path if precision in (None, found) else None


def _output(converted: Any, use: WeightUse) -> Any:
    return converted.subgraphs[use.subgraph].tensors[int(use.operator.outputs[0])]


def _quantize(content: bytes) -> bytes:
    from ai_edge_quantizer import qtyping, quantizer

    worker = quantizer.Quantizer(bytearray(content))
    worker.add_dynamic_config(
        regex=rf"^int8{re.escape(_SEPARATOR)}", operation_name=qtyping.TFLOperationName.ALL_SUPPORTED, num_bits=8
    )
    return bytes(worker.quantize(enable_progress_bar=False, enable_progress_report=False).quantized_model)
