"""Half-precision, 8-bit and 4-bit children of an FP32 file, under a policy of module paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count
from typing import Any

from compressor.core.artifact import Precision
from compressor.core.errors import StageError, UsageError
from compressor.quantize.plan import QuantizationPlan
from export.calibration import Calibration
from export.policy import check_policy, require_reduction, stored_precision
from export.tflite.compact import compact, merge_buffers, pack
from export.tflite.flatbuffer import LOOKUPS, WeightUse, parse, text, weight_uses
from export.tflite.half import store_half
from export.tflite.modules import ModuleMap, load_modules
from export.tflite.quiet import quiet_native
from export.tflite.static import Statistics, given, observe

STATIC_OPERATORS = frozenset({"FULLY_CONNECTED"})
"""What computes on fixed ranges. Norms and softmax stay in floating point: rounding their squares and sums to eight
bits is what loses the task, and they hold none of the weights."""
_SEPARATOR = "|"
"""Between precision, module path and a number in a working tensor name; no module path contains it."""


_BITS = {"int8": 8, "int4": 4}


def reduce_model(
    converted: Any, precision: Precision, plan: QuantizationPlan, calibration: Calibration | None = None
) -> bytes:
    """Returns the content of a lower-precision file.

    FP16 stores weights in half precision and restores them as the file is loaded (``DEQUANTIZE``), which every runtime
    knows. INT8 and INT4 have symmetric weights with one scale per output channel. Dynamic: activations are quantised as
    they come (https://ai.google.dev/edge/litert, "dynamic range quantization"). Static: linear layers read and write
    8-bit integers of ranges that were found before; embeddings are rows of integers that are widened as they are read,
    and inputs and outputs of the file stay what they were.

    Args:
        converted: the ``ModelT`` of a file that :func:`export.tflite.convert.convert_model` made; it is used up.
        precision: ``fp16``, ``int8`` or ``int4``.
        plan: decides by module path; see :mod:`export.policy`.
        calibration: the text on which static ranges are found.

    Raises:
        UsageError: a rule of the policy matches no module, nothing is left to reduce, or static ranges are to be found
            and there is no text.
        ArtifactError: the file does not name its modules.
        StageError: ai-edge-quantizer fails on the file.
    """
    modules = load_modules(converted)
    check_policy(plan, modules.modules)
    chosen = {use.buffer: _precision_of(use, modules, precision, plan) for use in weight_uses(converted)}
    require_reduction(chosen.values(), precision)
    visible = _visible_names(converted)
    _name_by_precision(converted, modules, chosen)
    if _BITS.keys() & set(chosen.values()):
        renumbered = merge_buffers(converted)
        owners = {renumbered[buffer]: path for buffer, path in modules.weights.items() if buffer in renumbered}
        content = pack(converted)
        del converted  # the quantizer takes several times the weights as it is
        statistics = _statistics(content, plan, owners, calibration)
        quantized = bytearray(content)
        del content
        converted = parse(_quantize(quantized, statistics))
    half = [(use, path) for use in weight_uses(converted) if (path := _named(converted, use, "fp16")) is not None]
    store_half(converted, half)
    weights = {use.buffer: _named(converted, use) or "" for use in weight_uses(converted)}
    _restore_names(converted, visible)
    return compact(converted, ModuleMap(modules.modules, weights))


def _precision_of(use: WeightUse, modules: ModuleMap, precision: Precision, plan: QuantizationPlan) -> str:
    if precision in _BITS and use.name in LOOKUPS and not plan.quantize_embeddings:
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


def _statistics(
    content: bytes, plan: QuantizationPlan, owners: Mapping[int, str], calibration: Calibration | None
) -> Statistics | None:
    """Returns the ranges of a static plan; None for a dynamic one."""
    if plan.method != "static":
        return None
    if calibration is None:
        raise UsageError(
            "static INT8 needs text to find ranges on, and none was given",
            remedy="add --calibrate FILE with sentences like those the model will read",
        )
    converted = parse(content)
    found = observe(content, converted, STATIC_OPERATORS, calibration, plan.observer)
    given(converted, found, owners, plan.ranges)
    return found


def _quantize(content: bytearray, statistics: Statistics | None) -> bytes:
    from ai_edge_quantizer import qtyping, quantizer

    worker = quantizer.Quantizer(content)
    for precision, bits in _BITS.items():
        regex = rf"^{precision}{re.escape(_SEPARATOR)}"
        worker.add_dynamic_config(regex, qtyping.TFLOperationName.ALL_SUPPORTED, num_bits=bits)
        if statistics is not None:
            for name in STATIC_OPERATORS:
                worker.add_static_config(
                    regex, qtyping.TFLOperationName(name), activation_num_bits=8, weight_num_bits=bits
                )
    try:
        with quiet_native():
            made = worker.quantize(statistics, enable_progress_bar=False, enable_progress_report=False)
            return bytes(made.quantized_model)
    except Exception as error:  # it raises bare classes, and passes on those of numpy, flatbuffers and its C++ parts
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise StageError(
            f"ai-edge-quantizer could not quantise this model: {first_line}",
            remedy="keep the module it names in fp32 by a rule of the policy, or export fp16",
        ) from error
