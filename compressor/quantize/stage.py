"""Stage ``quantize``: writes down how the exported files are to be quantised; each format carries it out.

With ``smooth`` or ``rounding`` it also changes the weights, within what the float model bears: the first leaves the
function as it is, the second moves every weight by less than one integer step.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator
from torch import nn

from compressor.core.checkpoint import QUANTIZATION, Checkpoint
from compressor.core.errors import RecipeError, StageError, UsageError
from compressor.core.folders import MARKER, write_json
from compressor.core.hashing import file_hashes
from compressor.core.limits import DropPoints
from compressor.core.spread import spread
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.evaluation import evaluate_model
from compressor.models import load_compressed, save_checkpoint
from compressor.quantize.fake import observed
from compressor.quantize.inputs import Inputs, linear_modules
from compressor.quantize.levels import FULL_LEVELS, REDUCED_LEVELS
from compressor.quantize.mixed import mixed_plan
from compressor.quantize.observers import ObserverName
from compressor.quantize.plan import Method, QuantizationPlan, Rule
from compressor.quantize.rounding import round_adaptively
from compressor.quantize.sensitivity import analyse_cached, plot
from compressor.quantize.smooth import smooth
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.runtime import torch_threads

PLOT = "sensitivity.svg"
_MAX_TOKENS = 128
_ROWS = 8
"""Most sentences in one batch."""


class QuantizeConfig(StageConfig):
    """Settings of ``quantize``."""

    precision: Literal["int8", "int4", "fp16"] = "int8"
    method: Method = "dynamic"
    observer: ObserverName = "auto"
    reduced_range: bool | None = None
    """Weights in seven bits, for x86 CPUs without VNNI; None: as the machine that exports needs it, for ONNX alone.
    ``smooth`` and ``rounding`` work on one grid, eight bits but for True; a file on the other grid rounds once more."""
    policy: tuple[Rule, ...] = ()
    """Precision by module path, in order; the last match wins. Empty: everything gets ``precision``."""
    quantize_embeddings: bool = True
    smooth: float | None = Field(default=None, ge=0, le=1)
    """Moves outliers of activations into weights by this strength (SmoothQuant's alpha) where it is exact and helps."""
    rounding: Literal["nearest", "adaptive"] = "nearest"
    """``adaptive``: weights go to the neighbour on their grid that changes a module's outputs least, where it helps."""
    calibration_sentences: int = Field(default=128, ge=2)
    """Training texts that smoothing and rounding look at."""
    max_drop_points: DropPoints = None
    """Largest fall in percentage points against the checkpoint that is exported; None: no limit."""
    sensitivity: bool = False
    """Find what each module alone costs, on the validation split; the table goes into the plan, a plot beside it."""
    mixed: bool = False
    """Keep the most sensitive modules in FP16, as many as ``max_drop_points`` needs in a simulation on validation."""

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        if self.mixed and (self.max_drop_points is None or self.precision == "fp16"):
            raise ValueError("'mixed' searches for integers within a limit: set 'max_drop_points' and int8 or int4")
        return self

    def plan(self) -> QuantizationPlan:
        """Returns the plan that export realises; rules of the policy refine the stage's precision."""
        return QuantizationPlan(
            precision=self.precision,
            method=self.method,
            policy=(Rule(pattern="*", precision=self.precision), *self.policy),
            quantize_embeddings=self.quantize_embeddings,
            observer=self.observer,
            reduced_range=self.reduced_range,
            max_drop_points=self.max_drop_points,
        )


@register
class Quantize(Stage[QuantizeConfig]):
    """Adds a quantisation plan to the current checkpoint; the weights stay as they are."""

    name: ClassVar[str] = "quantize"
    config_type: ClassVar[type[StageConfig]] = QuantizeConfig
    produces: ClassVar[Produces] = "checkpoint"

    def requires(self, context: Context) -> None:
        """Checks checkpoint and options before any work.

        Raises:
            ModelError: the checkpoint is no model folder.
            RecipeError: modules are to be weighed by a task that is not one label a text.
            UsageError: options that exclude each other.
        """
        Checkpoint.open(context.current.path)
        if (self.config.sensitivity or self.config.mixed) and context.data.task != "text-classification":
            raise RecipeError(
                f"'sensitivity' and 'mixed' weigh modules by accuracy and cross-entropy; found the task "
                f"{context.data.task}, expected text-classification",
                remedy="leave them out, and keep modules with 'policy' where the files lose too much",
            )
        if self.config.rounding == "adaptive" and self.config.precision != "int8":
            raise UsageError(
                f"adaptive rounding is for int8 weights; the stage asks for {self.config.precision}",
                remedy="leave rounding out, or choose precision int8",
            )

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Copies the checkpoint, improves its weights for integers where asked, and writes ``quantization.json``."""
        plan = self.config.plan()
        ignore = shutil.ignore_patterns(MARKER, QUANTIZATION)
        shutil.copytree(context.current.path, output, ignore=ignore, dirs_exist_ok=True)
        if self._prepares:
            model = load_compressed(context.current.path)
            plan = plan.model_copy(update={"decisions": prepare(model, self._batches(context), plan, self.config)})
            save_checkpoint(model, context.current.path, output)
        if self.config.sensitivity or self.config.mixed:
            plan = self._analysed(context, plan, Checkpoint.open(output))
        write_json(output / QUANTIZATION, plan.model_dump(mode="json"))
        if plan.sensitivities:
            plot(plan.sensitivities, output / PLOT)
        return {"plan": plan.model_dump(mode="json")}

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the plan reads back, and that no other file changed where the weights were not to change."""
        try:
            found = QuantizationPlan.model_validate(Checkpoint.open(output).quantization)
        except ValidationError as error:
            raise StageError(f"{output / QUANTIZATION} does not read back: {error}", remedy="report this") from error
        asked = self.config.plan()
        extra = {"decisions": {}, "sensitivities": (), "policy": found.policy[: len(asked.policy)]}
        if found.model_copy(update=extra) != asked:
            raise StageError(f"{output / QUANTIZATION} is not the plan that was asked for", remedy="report this stage")
        exclude = {MARKER, QUANTIZATION, PLOT}
        same = file_hashes(output, exclude=exclude) == file_hashes(context.current.path, exclude=exclude)
        if not same and not self._prepares:
            raise StageError(f"{output} is not the checkpoint it was made from", remedy="report this stage")

    @property
    def _prepares(self) -> bool:
        return self.config.smooth is not None or self.config.rounding == "adaptive"

    def _analysed(self, context: Context, plan: QuantizationPlan, made: Checkpoint) -> QuantizationPlan:
        """Returns the plan with each module's cost, and, where asked for, the modules that leave the integers."""
        model = load_compressed(made.path)
        data = encode_split(made, context.data.validation, max_tokens=_MAX_TOKENS)
        with torch_threads(context.threads):
            table = analyse_cached(
                model, data, context.workdir / "sensitivity", made.hash,
                bits=4 if plan.precision == "int4" else 8, method=plan.method, progress=context.progress,
            )  # fmt: skip
            if not self.config.mixed:
                return plan.model_copy(update={"sensitivities": table})
            with observed(model) as ranges:
                evaluate_model(model, data)
            return mixed_plan(
                model, data, plan, table, limit_points=self.config.max_drop_points or 0.0,
                ranges=ranges if plan.method == "static" else None,
            )  # fmt: skip

    def _batches(self, context: Context) -> list[dict[str, torch.Tensor]]:
        split = context.data.train
        chosen = spread(len(split), self.config.calibration_sentences)
        texts = Split(tuple(split.texts[i] for i in chosen), tuple(split.labels[i] for i in chosen))
        encoded = encode_split(context.current, texts, max_tokens=_MAX_TOKENS)
        rows = max(1, min(_ROWS, len(encoded) // 2))  # two batches at least: one to choose on, one to judge on
        return [encoded.inputs(range(at, min(at + rows, len(encoded)))) for at in range(0, len(encoded), rows)]


def prepare(
    model: nn.Module, batches: Sequence[Inputs], plan: QuantizationPlan, config: QuantizeConfig
) -> dict[str, Any]:
    """Smooths activations and rounds weights of a model in place, where that helps; returns what was decided."""
    levels = REDUCED_LEVELS if plan.reduced_range else FULL_LEVELS
    decisions: dict[str, Any] = {"weight_levels": levels}
    if config.smooth is not None:
        pairs = smooth(model, batches, strength=config.smooth, levels=levels)
        decisions["smooth"] = [pair.model_dump(mode="json") for pair in pairs]
    if config.rounding == "adaptive":
        paths = [path for path in linear_modules(model) if plan.precision_of(path) == "int8"]
        rounded = round_adaptively(model, paths, batches, levels=levels)
        decisions["rounding"] = [module.model_dump(mode="json") for module in rounded]
    return decisions
