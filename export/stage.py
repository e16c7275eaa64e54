"""The ``export`` stage: the current checkpoint as artifacts in every requested format and precision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from compressor.core.artifact import DEFAULT_FORMATS, PRECISIONS, Artifact, Format, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import CPU_LADDER
from compressor.core.errors import ModelError, StageError
from compressor.core.limits import DropPoints
from compressor.core.schema import Text
from compressor.core.spread import spread
from compressor.evaluation import check_reference, evaluate_checkpoint
from compressor.families.heads import LABELLED, find_task
from compressor.models import load_config
from compressor.quantize.plan import QuantizationPlan
from compressor.stage import Context, Stage, StageConfig, register
from export.backend import backend_for
from export.build import check_precisions, export_artifacts, offered_precisions
from export.cache import ConversionCache
from export.ladder import first_method
from export.source import ExportRequest, check_lengths
from export.tensorrt.versions import parse_range
from export.texts import texts_for

DEFAULT_LENGTHS = (16, 32, 64, 128)
DEFAULT_PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
CALIBRATION_TEXTS = 512
"""Training texts on which ranges of activations are observed."""
PARITY_TEXTS = 200
"""Texts from which each length's parity sentences are taken."""


class ExportConfig(StageConfig):
    """Settings of the export stage."""

    to: tuple[Format, ...] = Field(default=DEFAULT_FORMATS, min_length=1)
    precisions: tuple[Precision, ...] = Field(default=DEFAULT_PRECISIONS, min_length=1)
    """A format gets those of them that it can be made in; one that is named and that no format has is refused."""
    lengths: tuple[int, ...] = Field(default=DEFAULT_LENGTHS, min_length=1)
    tensorrt: str | None = None
    """Versions of TensorRT on the device, e.g. ``8.0 - 8.2``: what cannot read the typed graph gets one of its own."""
    tune: bool = False
    """Also makes ``onnx-<precision>-ort``, with ONNX Runtime's fused operators, where that is measured to pay."""
    max_drop_points: DropPoints = None
    """Overrides the limit of a quantize stage; against the checkpoint that is exported."""
    device: str | None = None
    """The device the files are for: its profile gives the order in which precisions are tried."""
    cache: bool = True
    """Take FP32 conversions from the cache (``$COMPRESSOR_CACHE``, default ``~/.cache/compressor``) and keep them."""


@register
class ExportStage(Stage[ExportConfig]):
    """Converts, proves, judges and bundles."""

    name = "export"
    config_type = ExportConfig
    produces = "artifacts"
    packages = ("torch", "transformers", "onnx", "onnxruntime", "onnxscript", "litert-torch", "ai-edge-quantizer",
                "ai-edge-litert", "tensorrt", "tensorrt-rtx-cu12")  # fmt: skip

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Checks packages, precisions and lengths; no stage changes how many tokens a model takes."""
        backends = [backend_for(name) for name in self.config.to]
        for backend in backends:
            backend.require()
            offered_precisions(backend, self.config.precisions)
        if "precisions" in self.config.model_fields_set:  # the default names more than an NPU has
            check_precisions(backends, self.config.precisions)
        check_lengths(self.config.lengths, load_config(teacher))
        if self.config.tensorrt is not None:
            parse_range(self.config.tensorrt)

    def requires(self, context: Context) -> None:
        """Checks that the checkpoint answers what the data asks, with the same labels in the same order."""
        task = context.data.task
        if (found := find_task(context.current)) != task:
            raise ModelError(
                f"the checkpoint's head is for {found}; the recipe's task is {task}",
                remedy=f"set 'task: {found}', or put a finetune stage first",
            )
        if task in LABELLED and context.current.labels != context.data.label_names:
            raise ModelError(
                f"the checkpoint's labels are {', '.join(context.current.labels[:6])}; "
                f"the data's are {', '.join(context.data.label_names[:6])}",
                remedy="put a finetune stage first, or use data with the model's labels",
            )

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Makes one folder an artifact; formats done before a kill are taken from the scratch folder."""
        plan = QuantizationPlan.beside(context.current)
        if self.config.max_drop_points is not None:
            plan = plan.model_copy(update={"max_drop_points": self.config.max_drop_points})
        device = None if self.config.device is None else context.device(self.config.device)
        if device is not None and context.current.quantization is None:
            plan = plan.model_copy(update={"method": first_method(device.ladder)})
        # A plan for FP16 makes nothing smaller than that.
        smallest = PRECISIONS.index(plan.precision) if context.current.quantization else len(PRECISIONS)
        precisions = tuple(
            item for item in self.config.precisions if item not in PRECISIONS or PRECISIONS.index(item) <= smallest
        )
        longest = max(self.config.lengths)
        task = context.data.task
        teacher = evaluate_checkpoint(
            context.trained_teacher, context.data.test, threads=context.threads, max_tokens=longest, task=task
        )
        check_reference(teacher, "the teacher")
        request = ExportRequest(
            formats=self.config.to, precisions=precisions, lengths=self.config.lengths, plan=plan,
            tensorrt=self.config.tensorrt,
            parity_texts=tuple(context.data.test.texts[:PARITY_TEXTS]), parity_source="test texts",
            calibration_texts=texts_for(task, 1, _spread(context.data.train.texts, CALIBRATION_TEXTS)),
            selection=context.data.validation, report=context.data.test, teacher=teacher,
            tune=self.config.tune, name=context.current.path.name, threads=context.threads,
            cache=context.workdir / "sensitivity",
            device=device, task=task, ladder=CPU_LADDER if device is None else device.ladder,
        )  # fmt: skip
        made = export_artifacts(
            context.current, request, context.scratch, cache=ConversionCache.default() if self.config.cache else None,
            progress=context.progress,
        )  # fmt: skip
        for artifact in made.artifacts:
            artifact.path.rename(output / artifact.name)
        return {"refused": [attempt.model_dump(mode="json") for attempt in made.refused]}

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


def _spread(texts: Sequence[Text], count: int) -> tuple[Text, ...]:
    return tuple(texts[at] for at in spread(len(texts), count))
