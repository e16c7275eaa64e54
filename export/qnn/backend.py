"""The ``onnx-qnn`` format: compiled ahead of time for one Snapdragon's NPU, judged in its simulator."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from compressor.core.artifact import (
    NPU_PRECISIONS,
    PLACEMENT,
    TARGET,
    Format,
    IOSpec,
    ModelStatistics,
    Placement,
    Precision,
    Signature,
)
from compressor.core.errors import ArtifactError
from compressor.core.folders import write_json, write_text
from compressor.quantize.plan import QuantizationPlan
from export.backend import ConversionSpec, Predictor, require_package
from export.calibration import Calibration
from export.onnx import files
from export.onnx.predictor import OnnxPredictor
from export.onnx.signatures import read_signature
from export.onnx.trace_options import TraceOptions
from export.qnn.compile import CONTEXT, compile_graph, wrapper_name
from export.qnn.inspection import statistics_of
from export.qnn.masks import NpuMasksPass
from export.qnn.npu import METADATA_KEY, Npu, check_precision, library_versions, npu_of
from export.qnn.phone import phone_instructions
from export.qnn.predictor import SimulatedPredictor
from export.qnn.quantize import quantize

if TYPE_CHECKING:  # what reads a file needs no PyTorch
    from torch import nn

OPSET = 20
"""The first with Gelu: as one operator it runs on the NPU at 16 bits, where its Erf does not."""
PLAIN = "plain.onnx"
"""The graph that was compiled, for devices that compile themselves; its ``tokens`` dimension is still free."""
LENGTHS_KEY = "compressor.lengths"
_OPTIONS = TraceOptions(opset=OPSET, integer="int32", dynamic_batch=False)


class QnnBackend:
    """A context binary with one graph a length, int32 inputs of shape (1, tokens), and the plain graph beside it."""

    format: Format = "onnx-qnn"
    model_file = CONTEXT
    model_pattern = "model*"
    dynamic_lengths = False
    simulated = True

    def offers(self, precision: Precision) -> bool:
        """Returns whether an NPU computes in this precision; which one does is the device's to say."""
        return precision in NPU_PRECISIONS

    def require(self) -> None:
        """Raises MissingExtraError when the QNN provider for ONNX Runtime is not installed."""
        require_package("onnxruntime_qnn", "onnxruntime-qnn", "qnn")
        for module in ("onnx", "onnxruntime", "onnxscript", "onnx_ir"):
            require_package(module, module.replace("_", "-"), "dev")

    def convert(self, model: nn.Module, spec: ConversionSpec, output: Path) -> None:
        """Writes the FP32 graph of ``model`` into ``output``, with its NPU and lengths in the file's metadata.

        Raises:
            UsageError: no device was named.
            IllegalOnDeviceError: the device has no NPU that encoders compile for.
            StageError: the graph is not valid, or larger than the model's unique parameters allow.
        """
        from export.onnx.build import build

        npu = npu_of(spec.device)
        path = output / PLAIN
        metadata = {METADATA_KEY: npu.to_text(), LENGTHS_KEY: ",".join(map(str, spec.lengths))}
        build(model, spec, path, _OPTIONS, metadata=metadata)
        graph = files.load(path)
        NpuMasksPass()(graph)
        files.save(graph, path)

    def reduce(
        self,
        source: Path,
        output: Path,
        precision: Precision,
        plan: QuantizationPlan,
        calibration: Calibration | None = None,
    ) -> None:
        """Writes the plain graph in ``precision`` and its compiled form into ``output``.

        FP16 is the float graph itself: the NPU rounds it to half precision as it compiles.

        Raises:
            UsageError: no calibration text for fixed ranges, or a pattern of the plan matches no module.
            IllegalOnDeviceError: a precision that this Hexagon generation does not compute in.
            StageError: the compiler refuses the graph.
        """
        npu, lengths = _target(source / PLAIN)
        check_precision(npu, precision)
        if precision == "fp16":
            for file in files.model_files(source / PLAIN):
                shutil.copyfile(file, output / file.name)
        else:
            quantize(source / PLAIN, output / PLAIN, precision, plan, calibration)
        placement = compile_graph(output / PLAIN, output, lengths, npu)
        target = {
            "device": npu.device,
            "soc_model": str(npu.hexagon.soc_model),
            "hexagon": f"v{npu.hexagon.arch}",
            **library_versions(),
        }
        write_json(output / TARGET, target)
        write_json(output / PLACEMENT, placement.model_dump(mode="json"))

    def finish(self, folder: Path, spec: ConversionSpec, precision: Precision) -> Mapping[str, object]:
        """Adds the instructions for a phone; returns what was placed where, for the card."""
        npu, lengths = _target(folder / PLAIN)
        placement = Placement.model_validate_json((folder / PLACEMENT).read_bytes())
        write_text(folder / "PHONE.md", phone_instructions(npu, lengths, [i.name for i in _first_inputs(folder)]))
        left = "; ".join(f"{count} {name}: {placement.reasons[name]}" for name, count in placement.cpu_nodes.items())
        return {
            "compiled for": npu.text,
            "compiled by": ", ".join(f"{name} {value}" for name, value in library_versions().items()),
            "placement": f"{100 * placement.delegated:.1f} % of {placement.nodes} operators on the NPU, in "
            f"{placement.contexts} context(s)" + (f"; on the CPU: {left}" if left else ""),
            "accuracy and parity": "simulated on the compiling machine; not run on hardware, and no latency is known",
            "on a phone": "see PHONE.md (not run on hardware)",
        }

    def signatures(self, folder: Path) -> tuple[Signature, ...]:
        """Returns one entry point a length; its key is the file to load."""
        graph = files.load(folder / PLAIN)
        _, lengths = _target(folder / PLAIN)
        return tuple(read_signature(graph, key=wrapper_name(length), length=length) for length in lengths)

    def inspect(self, model: Path) -> ModelStatistics:
        """Returns what is found beside a context binary: the precision of the graph it was compiled from.

        Raises:
            ArtifactError: the plain graph is missing or is no whole ONNX model.
        """
        folder = model.parent
        _, lengths = _target(folder / PLAIN)
        return statistics_of(folder / PLAIN, list(folder.glob(self.model_pattern)), lengths)

    def open(self, folder: Path, io: IOSpec, *, threads: int) -> Predictor:
        """Loads the compiled files in the simulator; before they are compiled, the float graph in ONNX Runtime."""
        _, lengths = _target(folder / PLAIN)
        if not (folder / CONTEXT).is_file():
            return OnnxPredictor(folder / PLAIN, threads=threads, fixed_batch=1)
        return SimulatedPredictor(folder, lengths, PLAIN)


def _target(plain: Path) -> tuple[Npu, tuple[int, ...]]:
    """Returns the NPU and the lengths that a plain graph names."""
    try:
        metadata = {item.key: item.value for item in onnx.load(str(plain), load_external_data=False).metadata_props}
        lengths = tuple(int(item) for item in metadata[LENGTHS_KEY].split(","))
        return Npu.model_validate_json(metadata[METADATA_KEY]), lengths
    except Exception as error:  # protobuf has error classes of its own
        raise ArtifactError(
            f"{plain} is missing or does not say for which NPU and lengths it is", remedy="convert again"
        ) from error


def _first_inputs(folder: Path) -> list[onnx.ValueInfoProto]:
    return list(onnx.load(str(folder / PLAIN), load_external_data=False).graph.input)
