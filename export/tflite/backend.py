"""The TFLite format: litert-torch converts, ai-edge-quantizer reduces, ai-edge-litert runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compressor.core.artifact import PRECISIONS, Format, IOSpec, ModelStatistics, Precision, Signature
from compressor.core.errors import UsageError
from compressor.core.folders import disk_errors
from compressor.quantize.plan import QuantizationPlan
from export.backend import ConversionSpec, Predictor, require_package
from export.calibration import Calibration

if TYPE_CHECKING:  # what reads a file needs no PyTorch
    from torch import nn

_PACKAGES = {
    "litert_torch": "litert-torch",
    "ai_edge_quantizer": "ai-edge-quantizer",
    "ai_edge_litert": "ai-edge-litert",
}


class TFLiteBackend:
    """One ``model.tflite`` with an entry point ``seq_<length>`` for each length, which share the weights."""

    format: Format = "tflite"
    model_file = "model.tflite"
    model_pattern = f"{model_file}*"
    dynamic_lengths = False
    simulated = False

    def offers(self, precision: Precision) -> bool:
        """Returns whether the format can be made in this precision."""
        return precision in PRECISIONS

    def require(self) -> None:
        """Raises MissingExtraError when a package of the ``tflite`` extra is not installed."""
        for module, package in _PACKAGES.items():
            require_package(module, package, "tflite")

    def convert(self, model: nn.Module, spec: ConversionSpec, output: Path) -> None:
        """Writes the FP32 file into ``output``.

        Raises:
            UsageError: a length is no positive number or more than the model takes.
            ModelError: litert-torch cannot convert the model, or the result does not fit one TFLite file (2 GiB).
            StageError: the file is larger than the model's unique parameters allow.
        """
        from export.tflite.convert import check_size, convert_model

        self.require()
        if not spec.lengths or min(spec.lengths) < 1 or max(spec.lengths) > spec.max_tokens:
            raise UsageError(
                f"lengths are {list(spec.lengths)}; expected numbers from 1 to {spec.max_tokens}",
                remedy="name lengths the model takes, e.g. --lengths 16,32,64,128",
            )
        content = convert_model(model, spec)
        check_size(content, model)
        _write(output / self.model_file, content)

    def reduce(
        self,
        source: Path,
        output: Path,
        precision: Precision,
        plan: QuantizationPlan,
        calibration: Calibration | None = None,
    ) -> None:
        """Writes a lower-precision copy of the FP32 folder ``source`` into ``output``.

        Nothing but ``source``'s model file is needed: it names the module of each weight in its metadata.

        Raises:
            UsageError: the plan's policy names a module that is not there, or leaves nothing to reduce.
            ArtifactError: the file is damaged or not one of this project's.
            StageError: ai-edge-quantizer fails on the file.
        """
        from export.tflite.flatbuffer import read
        from export.tflite.reduce import reduce_model

        if precision == "fp32":
            _write(output / self.model_file, (source / self.model_file).read_bytes())
            return
        if precision not in ("fp16", "int8", "int4"):
            raise UsageError(
                f"no TFLite file of precision '{precision}' can be asked for", remedy="fp32, fp16, int8 or int4"
            )
        self.require()
        _write(output / self.model_file, reduce_model(read(source / self.model_file), precision, plan, calibration))

    def finish(self, folder: Path, spec: ConversionSpec, precision: Precision) -> Mapping[str, object]:
        """Adds nothing to ``folder``; returns what an app must know beside ``io.json``."""
        from export.tflite.delegates import delegate_lines, delegate_reports

        facts: dict[str, object] = {
            "runtime": "LiteRT; batch 1, int32 inputs by name, one signature per length",
            **delegate_lines(delegate_reports(folder / self.model_file)),
        }
        if precision in ("int8", "int4"):
            facts["incompatible"] = (
                "the discontinued package tflite-runtime 2.14 loads such files and computes wrong results; "
                "use its successor, ai-edge-litert"
            )
        if precision == "fp16":
            facts["compute"] = "weights are stored in half precision; CPUs compute in fp32"
        return facts

    def signatures(self, folder: Path) -> tuple[Signature, ...]:
        """Returns the entry points as read back from the file in ``folder``, shortest first."""
        from export.tflite.inspect import read_signatures

        return read_signatures(folder / self.model_file)

    def inspect(self, model: Path) -> ModelStatistics:
        """Returns what is found in any ``.tflite`` file.

        Raises:
            ArtifactError: no TFLite file, or a damaged one.
        """
        from export.tflite.inspect import inspect_model

        self.require()
        return inspect_model(model)

    def open(self, folder: Path, io: IOSpec, *, threads: int) -> Predictor:
        """Loads the file in ``folder`` in LiteRT, with XNNPACK, on ``threads`` threads."""
        from export.tflite.predictor import TFLitePredictor

        require_package("ai_edge_litert", _PACKAGES["ai_edge_litert"], "tflite")
        return TFLitePredictor(folder / self.model_file, io, threads=threads)


def _write(path: Path, content: bytes) -> None:
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
