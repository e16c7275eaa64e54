"""A float graph as QDQ for the NPU: 8-bit weights, activations of 8 or 16 bits, modules left in float where planned."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from compressor.core.artifact import Precision
from compressor.core.errors import StageError, UsageError
from compressor.quantize.plan import QuantizationPlan
from export.calibration import Calibration
from export.onnx import files
from export.onnx.policy import module_path, module_paths, trained_ranges, weight_nodes
from export.onnx.quiet import root_errors_only
from export.policy import check_policy
from export.qnn.equalize import equalize_outputs
from export.qnn.ranges import Histogram, clipped, observe, without_mask
from export.qnn.sensitivity import sensitive_modules
from export.qnn.widths import wide_nodes, width_overrides

ACTIVATION_BITS: dict[Precision, int] = {"w8a8": 8, "w8a16": 16, "mixed": 16}


def quantize(
    source: Path, target: Path, precision: Precision, plan: QuantizationPlan, calibration: Calibration | None
) -> tuple[str, ...]:
    """Writes the QDQ form of the float graph ``source`` to ``target``.

    In ``w8a8``, the channels of a product are equalised first, and sums that 8 bits are too coarse for get 16. In
    ``mixed``, the modules that quantisation hurts most stay in float, which the NPU computes in half precision; modules
    that the plan keeps in ``fp16`` or ``fp32`` do so in every precision.

    Returns:
        The modules left in float, sorted.

    Raises:
        UsageError: no calibration text, or a pattern of the plan matches no module.
        StageError: ranges that are not finite.
    """
    if calibration is None or not len(calibration):
        raise UsageError(
            f"{precision} fixes the ranges of activations before the graph is compiled, and there is no text to "
            "observe them on",
            remedy="add --calibrate FILE with some hundred sentences of the kind the model will see",
        )
    bits = ACTIVATION_BITS[precision]
    model = files.load(source)
    check_policy(plan, module_paths(model))
    factors = equalize_outputs(model, calibration) if bits == 8 else frozenset()
    data = data_nodes(model)
    observed = observe(model, _activations(model), calibration)
    odd = sorted(name for name, item in observed.items() if not np.isfinite([item.low, item.high]).all())
    if odd:
        raise StageError(f"'{odd[0]}' takes values that are not finite", remedy="retrain, or report this model")
    kept = {path for path in module_paths(model) if plan.precision_of(path) in ("fp16", "fp32")}
    if precision == "mixed":
        kept |= sensitive_modules(model, observed)
    excluded = frozenset(str(node.name) for node in model.graph if node.name not in data or module_path(node) in kept)
    unmasked = _unmasked(model, observed)
    ranges = {name: clipped(item, 2**bits) for name, item in unmasked.items()}
    trained = trained_ranges(weight_nodes(model, embeddings=False), plan)
    ranges |= {name: (found.low, found.high) for name, found in trained.items() if name in ranges}
    wide = wide_nodes(model, unmasked, ranges, factors, excluded) if bits == 8 else frozenset()
    overrides = width_overrides(model, wide, unmasked, excluded)
    with tempfile.TemporaryDirectory() as folder:
        files.save(model, Path(folder) / source.name)
        _write(Path(folder) / source.name, target, bits, ranges, overrides, sorted(excluded))
    return tuple(sorted(kept))


def data_nodes(model: ir.Model) -> frozenset[str]:
    """Returns the names of the nodes that compute with text: from the values of the inputs, not just their shape.

    What is left (the positions' arithmetic in DeBERTa, for example) is constant once the length is fixed, and no
    observed range describes it. Lookups in an embedding table count as text: the position's row is added to it.
    """
    reached = set(model.graph.inputs)
    tables = {node for node in weight_nodes(model, embeddings=True) if node.op_type == "Gather"}
    names = set()
    for node in model.graph:
        if node.op_type != "Shape" and (node in tables or any(value in reached for value in node.inputs)):
            reached.update(node.outputs)
            names.add(str(node.name))
    return frozenset(names)


def _activations(model: ir.Model) -> list[str]:
    values = [value for node in model.graph for value in node.outputs]
    return [str(value.name) for value in values if value.dtype is ir.DataType.FLOAT and value.name]


def _unmasked(model: ir.Model, observed: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """Returns the histograms with those of masked scores (the inputs of Softmax) cut to what text needs."""
    scores = {str(node.inputs[0].name) for node in model.graph if node.op_type == "Softmax" and node.inputs[0]}
    return {name: without_mask(item) if name in scores else item for name, item in observed.items()}


def _write(
    source: Path,
    target: Path,
    bits: int,
    ranges: Mapping[str, tuple[float, float]],
    overrides: dict[str, list[dict[str, Any]]],
    excluded: list[str],
) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantType
    from onnxruntime.quantization.calibrate import TensorsData
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer
    from onnxruntime.quantization.quant_utils import load_model_with_shape_infer, update_opset_version

    with root_errors_only("onnxruntime"):
        activation = QuantType.QUInt8 if bits == 8 else QuantType.QUInt16
        config: Any = get_qnn_qdq_config(
            str(source), None, activation_type=activation, weight_type=QuantType.QUInt8, nodes_to_exclude=excluded,
            init_overrides=overrides, add_qtype_converts=False,
        )  # fmt: skip
        config.extra_options.pop("UseQDQContribOps", None)  # opset 21 has Q and DQ of 16 bits
        model = update_opset_version(load_model_with_shape_infer(source), QuantType.QUInt16)
        data = {name: (np.float32(low), np.float32(high)) for name, (low, high) in ranges.items()}
        quantizer = QDQQuantizer(
            model,
            False,
            False,
            QuantType.QUInt8,
            activation,
            TensorsData(CalibrationMethod.MinMax, data),
            [],
            excluded,
            config.op_types_to_quantize,
            config.extra_options,
        )
        quantizer.quantize_model()
        large = files.stored_bytes(source) > files.MAX_EMBEDDED_BYTES
        quantizer.model.save_model_to_file(str(target), large)
