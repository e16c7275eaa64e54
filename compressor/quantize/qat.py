"""Stage ``qat``: a model learns to be quantised, taught by its own unquantised self or by an earlier checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator
from torch import nn

from compressor.core.checkpoint import QUANTIZATION, Checkpoint
from compressor.core.errors import StageError
from compressor.core.folders import write_json
from compressor.core.limits import DropPoints
from compressor.core.spread import spread
from compressor.data.batches import EncodedSplit, encode_split, sorted_batches
from compressor.distill.agreement import check_labels, check_teacher, named_teacher, same_lengths, same_vocabulary
from compressor.distill.losses import HiddenLoss, LogitsLoss, LossConfig, check_losses, needs_of
from compressor.distill.objective import Distillation
from compressor.distill.outputs import Shape, model_shape
from compressor.distill.teacher import TeacherOutputs, teacher_digest, teacher_folder
from compressor.evaluation import check_reference, evaluate_model
from compressor.finetune import check_saved, check_trainable
from compressor.models import load_compressed, load_config, save_checkpoint
from compressor.processes import training_device
from compressor.quantize.fake import observed, quantizable
from compressor.quantize.plan import ActivationRange, QuantizationPlan, Rule
from compressor.quantize.training import Quantizers, RangeKind, input_groups, off_grid
from compressor.shapes import read_shape
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.loop import train, visited
from compressor.train.optimizer import freeze_word_embeddings
from compressor.train.runtime import reproducible
from compressor.train.settings import TrainSettings

_BITS = {"int8": 8, "int4": 4}
_FARTHEST = 0.01
"""Of a step: rounding again gives the same integers with certainty."""


class QATConfig(TrainSettings):
    """Settings of ``qat``; a short training at a low rate, for the model is trained already."""

    lr: float = Field(default=3e-5, gt=0)
    precision: Literal["int8", "int4"] = "int8"
    method: Literal["dynamic", "static"] = "static"
    """What is trained for: activations with ranges found at run time, or with fixed ones that the exports then take."""
    ranges: Literal["observed", "learned"] = "learned"
    """For ``static``: averages of what training sees, or steps that are trained with the weights (LSQ)."""
    policy: tuple[Rule, ...] = ()
    """Precision by module path, in order; the last match wins. Empty: everything gets ``precision``."""
    teacher: str | None = None
    """Id of the stage whose checkpoint teaches; None: the current checkpoint before it is quantised."""
    losses: tuple[LossConfig, ...] = Field(default=(LogitsLoss(), HiddenLoss()), min_length=1)
    observe_sentences: int = Field(default=256, gt=0)
    """Training sentences on which static ranges start."""
    cache_mb: float = Field(default=1024, ge=0)
    """Most megabytes of the teacher's hidden states to keep on disk while training."""
    max_drop_points: DropPoints = None
    """Largest fall in percentage points of an exported file against the checkpoint this stage makes; None: no limit."""
    reduced_range: bool | None = None
    """Train linear layers in seven bits, for ONNX on x86 CPUs without VNNI. None: in eight, which every format can
    hold; ONNX files that are made on such a CPU round them to seven."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_losses(self.losses)
        if self.method == "dynamic" and (idle := {"ranges", "observe_sentences"} & self.model_fields_set):
            raise ValueError(
                f"'{min(idle)}' is of fixed ranges; 'method: dynamic' finds them at run time: leave it out"
            )
        return self

    def plan(self, ranges: dict[str, ActivationRange] | None = None) -> QuantizationPlan:
        """Returns the plan that export realises."""
        return QuantizationPlan(
            precision=self.precision,
            method=self.method,
            policy=(Rule(pattern="*", precision=self.precision), *self.policy),
            max_drop_points=self.max_drop_points,
            reduced_range=self.reduced_range,
            ranges=ranges or {},
        )


@register
class QAT(Stage[QATConfig]):
    """Trains with rounded weights and activations; weights end on the grid that the exporters use."""

    name: ClassVar[str] = "qat"
    config_type: ClassVar[type[StageConfig]] = QATConfig
    produces: ClassVar[Produces] = "checkpoint"
    trains: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "accelerate")

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Raises RecipeError where the named teacher is no earlier stage."""
        check_teacher(self.config.teacher, earlier)

    def requires(self, context: Context) -> None:
        """Checks teacher, labels and layer maps before any work.

        Raises:
            RecipeError: an unknown teacher stage, a layer map that does not fit, or a task of several labels or none.
            ModelError: teacher and model that do not share vocabulary, or a model without the data's labels.
        """
        check_trainable(context.data.task, self.name, ("text-classification",))
        teacher = self._teacher(context)
        check_labels(teacher, context.data.label_names)
        same_vocabulary(teacher, context.current)
        needs_of(self.config.losses, _shape(context.current), _shape(teacher))

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Trains and saves; returns curves, accuracies before and after, and how far the ranges moved."""
        config = self.config
        seed = config.seed_or(context.seed)
        source = self._teacher(context)
        plan = config.plan()
        with reproducible(seed=seed, threads=context.threads):
            model, teacher = load_compressed(context.current.path), load_compressed(source.path)
            splits = {
                name: encode_split(context.current, split, max_tokens=config.max_tokens, folder=context.scratch)
                for name, split in context.data.splits.items()
            }
            teacher.to(training_device())
            theirs = encode_split(source, context.data.train, max_tokens=config.max_tokens, folder=context.scratch)
            same_lengths(theirs, splits["train"])
            before = {name: evaluate_model(model, splits[name]) for name in ("validation", "test")}
            check_reference(before["validation"], f"the model {context.current.path}")
            bits = _bits(model, plan)
            if config.freeze_embeddings:
                freeze_word_embeddings(model)
            kind: RangeKind = config.ranges if config.method == "static" else "dynamic"
            quantizers = Quantizers(
                model,
                bits,
                kind,
                *self._observe(model, splits["train"]),
            )
            objective = self._objective(context, source, model, teacher, quantizers, theirs, splits["train"], seed)
            with quantizers.attached(model):
                curves = train(
                    objective, splits["train"], config, seed=seed, scratch=context.scratch, progress=context.progress
                )
                after = {name: evaluate_model(model, splits[name]) for name in before}
        save_checkpoint(model, context.current.path, output)
        write_json(output / QUANTIZATION, config.plan(quantizers.ranges()).model_dump(mode="json"))
        facts = {"stage": self.name, "precision": config.precision, "method": config.method, "ranges": kind}
        write_history(output, context.current, facts)
        evaluations = {"float": before, "quantized": after}
        return {
            "curves": curves,
            "evaluation": {
                name: {split: found.model_dump() for split, found in results.items()}
                for name, results in evaluations.items()
            },
            "quantized_modules": len(quantizers.bits),
        }

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model is finite, that its plan reads back, and that its weights are on their grid."""
        model = check_saved(output)
        try:
            plan = QuantizationPlan.model_validate(Checkpoint.open(output).quantization)
        except ValidationError as error:
            raise StageError(f"{output / QUANTIZATION} does not read back: {error}", remedy="report this") from error
        for path, width in _bits(model, plan).items():
            weight: Any = model.get_submodule(path).weight
            if (distance := off_grid(weight.detach(), width)) > _FARTHEST:
                raise StageError(
                    f"{path} is {distance:.3f} steps off its {width}-bit grid; expected at most {_FARTHEST}",
                    remedy="report this stage",
                )

    def _observe(self, model: nn.Module, data: EncodedSplit) -> tuple[dict[str, ActivationRange], dict[str, str]]:
        """Returns the ranges from which static training starts, and which layers read the same tensor."""
        chosen = spread(len(data), self.config.observe_sentences)
        model.eval()
        with observed(model) as ranges, torch.no_grad():
            for places in sorted_batches([data.lengths[index] for index in chosen], 32):
                model(**data.inputs([chosen[place] for place in places]))
        return ranges, input_groups(model, data.inputs(chosen[:1]))

    def _objective(
        self,
        context: Context,
        source: Checkpoint,
        model: nn.Module,
        teacher: nn.Module,
        quantizers: Quantizers,
        theirs: EncodedSplit,
        ours: EncodedSplit,
        seed: int,
    ) -> _QuantizedDistillation:
        config = self.config
        shapes = _shape(context.current), _shape(source)
        _, needs = needs_of(config.losses, *shapes)
        targets = TeacherOutputs(
            teacher,
            theirs,
            needed=visited(ours, config, seed),
            states=needs.states,
            layers=needs.layers,
            width=shapes[1].hidden_size,
            folder=teacher_folder(context.scratch),
            digest=teacher_digest(source),
            cache_mb=config.cache_mb,
            progress=context.progress,
        )
        return _QuantizedDistillation(model, targets, config.losses, quantizers, shapes)

    def _teacher(self, context: Context) -> Checkpoint:
        return named_teacher(self.config.teacher, context) or context.current


def _bits(model: nn.Module, plan: QuantizationPlan) -> dict[str, int]:
    """Returns the bits of every weight that is trained in few; tables are never multiplied, so they keep all eight."""
    bits = {path: _BITS.get(plan.precision_of(path), 0) for path in quantizable(model)}
    return {
        path: 7 if width == 8 and plan.reduced_range and isinstance(model.get_submodule(path), nn.Linear) else width
        for path, width in bits.items()
        if width
    }


class _QuantizedDistillation(Distillation):
    """Distillation whose optimiser also sees the learned steps of the activations."""

    def __init__(
        self,
        model: nn.Module,
        targets: TeacherOutputs,
        losses: tuple[LossConfig, ...],
        quantizers: Quantizers,
        shapes: tuple[Shape, Shape],
    ) -> None:
        super().__init__(model, targets, losses, student_shape=shapes[0], teacher_shape=shapes[1])
        self.quantizers = quantizers


def _shape(checkpoint: Checkpoint) -> Shape:
    return model_shape(load_config(checkpoint), read_shape(checkpoint))
