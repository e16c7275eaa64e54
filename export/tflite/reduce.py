"""Half-precision and 8-bit children of an FP32 file, under a policy of module paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Any

from compressor.core.artifact import Precision
from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan
from export.policy import check_policy, require_reduction, stored_precision
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
        plan: decides by module path; see :mod:`export.policy`.

    Raises:
        UsageError: a rule of the policy matches no module, or nothing is left to reduce.
        ArtifactError: the file does not name its modules.
        StageError: ai-edge-quantizer fails on the file.
    """
    modules = load_modules(converted)
    check_policy(plan, modules.modules)
    chosen = {use.buffer: _precision_of(use, modules, precision, plan) for use in weight_uses(converted)}
    require_reduction(chosen.values(), precision)
    visible = _visible_names(converted)
    _name_by_precision(converted, modules, chosen)
    if "int8" in chosen.values():
        merge_buffers(converted)
        with quiet_native():
            converted = parse(_quantize(pack(converted)))
    half = [(use, path) for use in weight_uses(converted) if (path := _named(converted, use, "fp16")) is not None]
    store_half(converted, half)
    weights = {use.buffer: _named(converted, use) or "" for use in weight_uses(converted)}
    _restore_names(converted, visible)
    return compact(converted, ModuleMap(modules.modules, weights))


def _precision_of(use: WeightUse, modules: ModuleMap, precision: Precision, plan: QuantizationPlan) -> str:
    if precision == "int8" and use.name in LOOKUPS and not plan.quantize_embeddings:
        return "fp32"
    return stored_precision(plan, modules.weights.get(use.buffer, ""), precision)


def _visible_names(converted: Any) -> list[list[Any]]:
    """Returns the names of each subgraph's inputs and outputs, in order; working names take their place for a while."""
    return [
        [graph.tensors[int(index)].name for index in (*graph.inputs, *graph.outputs)] for graph in converted.subgraphs
    ]


def _restore_names(converted: Any, visible: list[list[Any]]) -> None:
    for graph, names in zip(converted.subgraphs, visible, strict=True):
        for index, name in zip((*graph.inputs, *graph.outputs), names, strict=True):
            graph.tensors[int(index)].name = name


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
    try:
        return bytes(worker.quantize(enable_progress_bar=False, enable_progress_report=False).quantized_model)
    except Exception as error:  # it raises bare classes, and passes on those of numpy, flatbuffers and its C++ parts
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise StageError(
            f"ai-edge-quantizer could not quantise this model: {first_line}",
            remedy="keep the module it names in fp32 by a rule of the policy, or export fp16",
        ) from error
