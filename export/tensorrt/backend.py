"""The TensorRT format: the strongly typed ONNX file from which a device builds its engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from compressor.core.artifact import Format, IOSpec, ModelStatistics, Precision, Signature
from compressor.core.errors import UsageError
from compressor.core.folders import write_json
from compressor.quantize.plan import QuantizationPlan
from export.backend import ConversionSpec, Predictor, require_package
from export.calibration import Calibration
from export.onnx import files
from export.onnx.backend import RANGES_FILE, audit_note, reduce_graph
from export.onnx.half_audit import HalfAudit
from export.onnx.inspection import statistics
from export.onnx.predictor import OnnxPredictor
from export.onnx.signatures import read_signature
from export.onnx.trace_options import TraceOptions
from export.tensorrt.engines import build_engine_here, build_rtx_plan
from export.tensorrt.graphs import WEAK_FILE, graphs_in, weak_graph_needed, write_weak_graph
from export.tensorrt.int8 import TYPED_OPSET, Quantized, plan_int8, quantize_typed
from export.tensorrt.profiles import METADATA_KEY, from_text, profiles_of, to_text
from export.tensorrt.scripts import write_build_files
from export.tensorrt.versions import RANGE_KEY, parse_range

if TYPE_CHECKING:  # what reads a file needs no PyTorch
    from torch import nn

OPSET = 17
"""The first with LayerNormalization, and the last that TensorRT 8.6 reads."""
_OPTIONS = TraceOptions(opset=OPSET, integer="int32", dynamic_batch=False)


class TensorRTBackend:
    """One ``model.onnx`` with int32 inputs of shape (1, tokens), and what builds its engine, one profile a length.

    Where the device may have a TensorRT that cannot read that file, ``model.trt8.onnx`` lies beside it.
    """

    format: Format = "tensorrt"
    model_file = files.MODEL_FILE
    model_pattern = f"{model_file}*"
    dynamic_lengths = False
    simulated = False

    def offers(self, precision: Precision) -> bool:
        """Returns whether a graph of this precision is made; INT8 by Q/DQ, with ranges from calibration text."""
        return precision in ("fp32", "fp16", "int8")

    def require(self) -> None:
        """Raises MissingExtraError when ONNX or ONNX Runtime is missing; TensorRT is needed on the device only."""
        for module in ("onnx", "onnxruntime", "onnxscript", "onnx_ir", "jinja2"):
            require_package(module, module.replace("_", "-"), "dev")

    def convert(self, model: nn.Module, spec: ConversionSpec, output: Path) -> None:
        """Writes the FP32 graph of ``model`` into ``output``, with its profiles in the file's metadata.

        Raises:
            UsageError: profiles that are not ascending, or reach beyond the model's tokens.
            StageError: the graph is not valid, or larger than the model's unique parameters allow.
        """
        from export.onnx.build import build

        metadata = {METADATA_KEY: to_text(profiles_of(spec))}
        if spec.tensorrt is not None:
            metadata[RANGE_KEY] = parse_range(spec.tensorrt).text
        build(model, spec, output / self.model_file, _OPTIONS, metadata=metadata)

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
            UsageError: a pattern of the plan matches no module, or INT8 without calibration text.
            StageError: the result is not a valid graph, a weight does not fit half precision, or the graph for an older
                TensorRT does not compute the same.
        """
        graph, target = source / self.model_file, output / self.model_file
        quantized: Quantized | None = None
        if precision == "int8" and calibration is not None:
            model = files.load(graph)
            quantized = plan_int8(model, plan, calibration)
            audit = quantize_typed(model, quantized, calibration)
            files.save(model, target)
            files.check(target, opset=TYPED_OPSET)
            ranges = {name: asdict(found) for name, found in quantized.ranges.items()}
            write_json(output / RANGES_FILE, {"activations": ranges, "half_audit": audit.model_dump(mode="json")})
        elif precision == "int8":
            raise UsageError(
                "INT8 for TensorRT takes fixed ranges of activations, and there is no text to observe them on",
                remedy="pass --calibrate FILE with a few hundred real sentences",
            )
        else:
            reduce_graph(graph, target, precision, plan, calibration)
        if weak_graph_needed(files.load(graph), precision):
            widened = _widened(output / RANGES_FILE)
            write_weak_graph(graph, output / WEAK_FILE, precision, plan, quantized=quantized, widened=widened)

    def finish(self, folder: Path, spec: ConversionSpec, precision: Precision) -> Mapping[str, object]:
        """Adds the build scripts, and the engines that can be built here; returns what was and was not built.

        Raises:
            StageError: an engine was built and does not compute in the precision asked for.
        """
        path = folder / self.model_file
        graph = files.load(path)
        profiles = from_text(graph.metadata_props.get(METADATA_KEY, "")) or profiles_of(spec)
        graphs = graphs_in(folder, precision)
        write_build_files(
            folder,
            graphs=graphs,
            inputs=[str(value.name) for value in graph.graph.inputs],
            profiles=profiles,
            precision=precision,
        )
        return {
            "opset": files.opset_of(graph),
            "tensorrt": ", ".join(f"{item.model} from {'.'.join(map(str, item.oldest))}" for item in graphs),
            **audit_note(folder),
            **build_rtx_plan(path, profiles, precision),
            **build_engine_here(folder),
        }

    def signatures(self, folder: Path) -> tuple[Signature, ...]:
        """Returns one entry point a profile, ``profile_0`` the shortest."""
        graph = files.load(folder / self.model_file)
        profiles = from_text(graph.metadata_props.get(METADATA_KEY, ""))
        if not profiles:
            return (read_signature(graph),)
        return tuple(
            read_signature(graph, key=f"profile_{index}", length=profile.max_tokens)
            for index, profile in enumerate(profiles)
        )

    def inspect(self, model: Path) -> ModelStatistics:
        """Returns what is found in the ONNX file that engines are built from.

        Raises:
            ArtifactError: the file is no whole ONNX model.
        """
        found = statistics(model, "tensorrt")
        profiles = from_text(files.load(model).metadata_props.get(METADATA_KEY, ""))
        return found.model_copy(update={"lengths": tuple(profile.max_tokens for profile in profiles) or found.lengths})

    def open(self, folder: Path, io: IOSpec, *, threads: int) -> Predictor:
        """Loads the ONNX file in ONNX Runtime on this CPU: it checks what engines are built from, not an engine."""
        return OnnxPredictor(folder / self.model_file, threads=threads, fixed_batch=1)


def _widened(ranges: Path) -> frozenset[str]:
    """Returns the names of the nodes that measured ranges keep in FP32, as ``ranges.json`` lists them."""
    audit = json.loads(ranges.read_text(encoding="utf-8")).get("half_audit") if ranges.is_file() else None
    return frozenset() if audit is None else frozenset(peak.node for peak in HalfAudit.model_validate(audit).widened)
