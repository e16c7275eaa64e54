"""Stage ``quantize``: writes down how the exported files are to be quantised; each format carries it out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, ValidationError

from compressor.core.checkpoint import QUANTIZATION, Checkpoint
from compressor.core.errors import StageError
from compressor.core.folders import MARKER, write_json
from compressor.core.hashing import file_hashes
from compressor.quantize.observers import ObserverName
from compressor.quantize.plan import Method, QuantizationPlan, Rule
from compressor.stage import Context, Produces, Stage, StageConfig, register


class QuantizeConfig(StageConfig):
    """Settings of ``quantize``."""

    precision: Literal["int8", "int4", "fp16"] = "int8"
    method: Method = "dynamic"
    observer: ObserverName = "auto"
    reduced_range: bool | None = None
    """Weights in seven bits, for x86 CPUs without VNNI; None: as the machine that exports needs it."""
    policy: tuple[Rule, ...] = ()
    """Precision by module path, in order; the last match wins. Empty: everything gets ``precision``."""
    quantize_embeddings: bool = True
    max_drop_points: float | None = Field(default=None, ge=0)
    """Largest fall in percentage points against the checkpoint that is exported; None: no limit."""

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
        """Raises ModelError where the current checkpoint is no model folder."""
        Checkpoint.open(context.current.path)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Copies the checkpoint and writes ``quantization.json``."""
        plan = self.config.plan()
        ignore = shutil.ignore_patterns(MARKER, QUANTIZATION)
        shutil.copytree(context.current.path, output, ignore=ignore, dirs_exist_ok=True)
        write_json(output / QUANTIZATION, plan.model_dump(mode="json"))
        return {"plan": plan.model_dump(mode="json")}

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the plan reads back and that no other file changed."""
        try:
            found = QuantizationPlan.model_validate(Checkpoint.open(output).quantization)
        except ValidationError as error:
            raise StageError(f"{output / QUANTIZATION} does not read back: {error}", remedy="report this") from error
        before = file_hashes(context.current.path, exclude={MARKER, QUANTIZATION})
        if found != self.config.plan() or file_hashes(output, exclude={MARKER, QUANTIZATION}) != before:
            raise StageError(f"{output} is not the checkpoint it was made from", remedy="report this stage")
