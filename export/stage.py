"""The ``export`` stage: the current checkpoint as artifacts in every requested format and precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from compressor.core.artifact import FORMATS, PRECISIONS, Artifact, Format, Precision
from compressor.core.errors import StageError
from compressor.evaluation import check_reference, evaluate_checkpoint
from compressor.quantize.plan import QuantizationPlan
from compressor.stage import Context, Stage, StageConfig, register
from export.backend import backend_for
from export.build import export_artifacts
from export.source import ExportRequest

DEFAULT_LENGTHS = (16, 32, 64, 128)
PARITY_TEXTS = 200
"""Texts from which each length's parity sentences are taken."""


class ExportConfig(StageConfig):
    """Settings of the export stage."""

    to: tuple[Format, ...] = Field(default=FORMATS, min_length=1)
    precisions: tuple[Precision, ...] = Field(default=PRECISIONS, min_length=1)
    """TensorRT gets the float ones: its INT8 needs static calibration."""
    lengths: tuple[int, ...] = Field(default=DEFAULT_LENGTHS, min_length=1)
    max_drop_points: float | None = None
    """Overrides the limit of a quantize stage; against the checkpoint that is exported."""


@register
class ExportStage(Stage[ExportConfig]):
    """Converts, proves, judges and bundles."""

    name = "export"
    config_type = ExportConfig
    produces = "artifacts"
    packages = ("torch", "transformers", "onnx", "onnxruntime", "onnxscript", "litert-torch", "ai-edge-quantizer",
                "ai-edge-litert", "tensorrt", "tensorrt-rtx-cu12")  # fmt: skip

    def requires(self, context: Context) -> None:
        """Checks that the packages of every format are installed."""
        for name in self.config.to:
            backend_for(name).require()

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Makes one folder an artifact; formats done before a kill are taken from the scratch folder."""
        plan = QuantizationPlan.model_validate(context.current.quantization or {})
        if self.config.max_drop_points is not None:
            plan = plan.model_copy(update={"max_drop_points": self.config.max_drop_points})
        teacher = None
        if context.reference is not None:
            teacher = evaluate_checkpoint(context.reference, context.data.test, threads=context.threads)
            check_reference(teacher)
        request = ExportRequest(
            formats=self.config.to, precisions=self.config.precisions, lengths=self.config.lengths, plan=plan,
            parity_texts=context.data.test.texts[:PARITY_TEXTS], parity_source="test texts",
            selection=context.data.validation, report=context.data.test, teacher=teacher,
            name=context.current.path.name, threads=context.threads,
        )  # fmt: skip
        artifacts = export_artifacts(context.current, request, context.scratch, progress=context.progress)
        for artifact in artifacts:
            artifact.path.rename(output / artifact.name)
        return {"artifacts": {item.name: item.manifest.model_dump(mode="json") for item in artifacts}}

    def ensures(self, context: Context, output: Path) -> None:
        """Every folder is whole, and its precision is the one found in the file."""
        for folder in output.iterdir():
            artifact = Artifact.load(folder)
            found = backend_for(artifact.manifest.format).inspect(artifact.model_path).precision
            if found != artifact.manifest.precision:
                raise StageError(
                    f"{folder.name} holds {found}; its manifest says {artifact.manifest.precision}",
                    remedy="report this model",
                )
