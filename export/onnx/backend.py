"""The ONNX format: what ONNX Runtime, and everything that reads its files, runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir

from compressor.core.artifact import PRECISIONS, Format, IOSpec, ModelStatistics, Precision, Signature
from compressor.core.errors import UsageError
from compressor.core.folders import write_json
from compressor.quantize.plan import QuantizationPlan
from export.backend import ConversionSpec, Predictor, require_package
from export.calibration import Calibration
from export.onnx import files
from export.onnx.half import to_half
from export.onnx.half_audit import HalfAudit, audited_half
from export.onnx.inspection import statistics
from export.onnx.policy import module_path, module_paths, weight_nodes
from export.onnx.predictor import OnnxPredictor
from export.onnx.quantize import quantize
from export.onnx.saturation import METADATA_KEY, describe, warn_if_saturating
from export.onnx.signatures import read_signature
from export.onnx.trace_options import TraceOptions
from export.policy import check_policy, require_reduction, stored_precision

if TYPE_CHECKING:  # what reads a file needs no PyTorch
    from torch import nn

OPSET = 18
RANGES_FILE = "ranges.json"
"""Measured ranges, beside a file whose precision depends on them."""
_OPTIONS = TraceOptions(opset=OPSET, integer="int64", dynamic_batch=True)


class OnnxBackend:
    """One ``model.onnx`` with int64 inputs, and any batch size and length."""

    format: Format = "onnx"
    model_file = files.MODEL_FILE
    model_pattern = f"{model_file}*"
    dynamic_lengths = True
    simulated = False

    def offers(self, precision: Precision) -> bool:
        """Returns True: every precision is made."""
        return precision in PRECISIONS

    def require(self) -> None:
        """Raises MissingExtraError when ONNX or ONNX Runtime is not installed."""
        for module in ("onnx", "onnxruntime", "onnxscript", "onnx_ir"):
            require_package(module, module.replace("_", "-"), "dev")

    def convert(self, model: nn.Module, spec: ConversionSpec, output: Path) -> None:
        """Writes the clean FP32 graph of ``model`` into ``output``.

        Raises:
            StageError: the graph is not valid, or larger than the model's unique parameters allow.
        """
        from export.onnx.build import build

        build(model, spec, output / self.model_file, _OPTIONS)

    def reduce(
        self,
        source: Path,
        output: Path,
        precision: Precision,
        plan: QuantizationPlan,
        calibration: Calibration | None = None,
    ) -> None:
        """Writes a lower-precision copy of the FP32 folder ``source`` into ``output``.

        Raises:
            UsageError: a pattern of the plan matches no module, or a precision that is none of those made here.
            StageError: the result is not a valid graph, or a weight does not fit half precision.
        """
        reduce_graph(source / self.model_file, output / self.model_file, precision, plan, calibration)

    def finish(self, folder: Path, spec: ConversionSpec, precision: Precision) -> Mapping[str, object]:
        """Adds nothing: the file is complete. Returns the opset as read back, and on which CPUs INT8 may saturate."""
        model = files.load(folder / self.model_file)
        facts: dict[str, object] = {"opset": files.opset_of(model)}
        if METADATA_KEY in model.metadata_props:
            facts["int8_products"] = describe(model.metadata_props)
        return {**facts, **audit_note(folder)}

    def signatures(self, folder: Path) -> tuple[Signature, ...]:
        """Returns the single entry point of the file in ``folder``."""
        return (read_signature(files.load(folder / self.model_file)),)

    def inspect(self, model: Path) -> ModelStatistics:
        """Returns what is found in any ONNX file.

        Raises:
            ArtifactError: the file is no whole ONNX model.
        """
        return statistics(model)

    def open(self, folder: Path, io: IOSpec, *, threads: int) -> Predictor:
        """Loads the file in ``folder`` in ONNX Runtime on this CPU; warns where its products would saturate."""
        predictor = OnnxPredictor(folder / self.model_file, threads=threads)
        warn_if_saturating(predictor.metadata, str(folder / self.model_file))
        return predictor


def reduce_graph(
    source: Path,
    target: Path,
    precision: Precision,
    plan: QuantizationPlan,
    calibration: Calibration | None = None,
) -> None:
    """Writes ``source`` (a clean FP32 graph) to ``target`` in another precision, and proves the result valid.

    Raises:
        UsageError: a pattern of the plan matches no module, or an unknown precision.
        StageError: the result is not a valid graph, or a weight does not fit half precision.
    """
    if precision == "fp32":
        for file in files.model_files(source):
            shutil.copyfile(file, target.parent / file.name)
        return
    model = files.load(source)
    opset = files.opset_of(model)
    facts: dict[str, object] = {}
    if precision == "fp16":
        check_policy(plan, module_paths(model))
        weights = weight_nodes(model, embeddings=True)
        require_reduction([stored_precision(plan, module_path(node), precision) for node in weights], precision)
        keep = partial(_planned_fp32, plan)
        if calibration is None:
            to_half(model, keep)
        else:
            audit = audited_half(model, calibration, keep)
            facts["half_audit"] = audit.model_dump(mode="json")
    elif precision in ("int8", "int4"):
        ranges = quantize(model, precision, plan, calibration)
        if ranges:
            facts["activations"] = {name: asdict(found) for name, found in ranges.items()}
    else:
        raise UsageError(f"'{precision}' is no target precision", remedy="ask for fp32, fp16, int8 or int4")
    files.save(model, target)
    files.check(target, opset=opset)
    if facts:
        write_json(target.parent / RANGES_FILE, facts)


def audit_note(folder: Path) -> dict[str, str]:
    """Returns what the range audit of a folder made by :func:`reduce_graph` found, in one line for the manifest."""
    file = folder / RANGES_FILE
    found = json.loads(file.read_text(encoding="utf-8")).get("half_audit") if file.is_file() else None
    if found is None:
        return {}
    audit = HalfAudit.model_validate(found)
    largest = max((peak.magnitude for peak in audit.peaks), default=0.0)
    return {
        "half_audit": (
            f"on {audit.sentences} sentences to {audit.longest_tokens} tokens the values meant for half reach "
            f"{largest:.4g} of {audit.half_max:.0f}; {len(audit.widened)} nodes stay FP32 for it; on "
            f"{audit.emulated_sentences} of the sentences, rounding every half result moves the logits by "
            f"{audit.emulated_error:.2g} of their spread ({RANGES_FILE})"
        )
    }


def _planned_fp32(plan: QuantizationPlan, node: ir.Node) -> bool:
    return stored_precision(plan, module_path(node), "fp16") == "fp32"
