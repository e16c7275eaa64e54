"""The quantisation plan: ``quantization.json``, an ordered policy over module paths that each format realises."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from compressor.core.artifact import Precision
from compressor.core.checkpoint import QUANTIZATION, Checkpoint
from compressor.core.errors import ModelError
from compressor.core.limits import DropPoints
from compressor.core.objection import objection
from compressor.core.schema import Record
from compressor.quantize.observers import ObserverName

Method = Literal["dynamic", "static"]
"""``dynamic``: ranges of activations are found at run time; ``static``: observed before on calibration text."""
EVERYTHING = "*"
"""The pattern of a rule for all modules."""


class Rule(Record):
    """Modules whose dotted path matches ``pattern`` (``*`` matches any run of characters) get ``precision``."""

    pattern: str
    precision: Literal["fp32", "fp16", "int8", "int4"]


class ActivationRange(Record):
    """Smallest and largest value of a module's input and output activations, as observed or learned."""

    input: tuple[float, float]
    output: tuple[float, float]


class Sensitivity(Record):
    """What quantising one module alone costs."""

    module: str
    loss: float
    """Task loss (cross-entropy) with this module alone quantised, minus the model's own."""
    error: float
    """Root mean square error of the logits, in units of their spread."""
    parameters: int
    """Weights of the module."""


class QuantizationPlan(Record):
    """What to quantise and how far accuracy may fall; the last matching rule wins."""

    schema_version: Literal[1] = 1
    precision: Precision = "int8"
    method: Method = "dynamic"
    policy: tuple[Rule, ...] = Field(default=(Rule(pattern=EVERYTHING, precision="int8"),))
    quantize_embeddings: bool = True
    observer: ObserverName = "auto"
    """How ranges of activations are found where they are fixed."""
    reduced_range: bool | None = None
    """Weights in seven bits, for x86 CPUs without VNNI, which saturate full-range products (ONNX). None: where the
    machine that makes the file is such a CPU."""
    decisions: Mapping[str, Any] = Field(default_factory=dict)
    """What the stage found as it smoothed activations or rounded weights: errors with and without, what it kept."""
    max_drop_points: DropPoints = None
    """Largest fall in percentage points against the checkpoint being exported; None: no limit."""
    ranges: Mapping[str, ActivationRange] = Field(default_factory=dict)
    """Ranges of activations by module path that a static export takes instead of observing its own."""
    sensitivities: tuple[Sensitivity, ...] = ()
    """Each module alone, the most sensitive first; empty where no analysis ran."""

    @classmethod
    def beside(cls, checkpoint: Checkpoint) -> Self:
        """Returns the plan that a quantize stage left beside a checkpoint's weights; the default where none did.

        Raises:
            ModelError: ``quantization.json`` is no plan.
        """
        found = checkpoint.quantization or {}
        try:
            return cls.model_validate(found)
        except ValidationError as error:
            raise ModelError(
                objection(error, found).at(f"{checkpoint.path / QUANTIZATION} holds no readable plan"),
                remedy="restore the file that was saved with these weights, or remove it to export without a plan",
            ) from error

    @classmethod
    def uniform(cls, precision: Precision, **settings: Any) -> QuantizationPlan:
        """Returns the plan that stores every module in ``precision``."""
        return cls.model_validate(
            {"precision": precision, "policy": [{"pattern": "*", "precision": precision}], **settings}
        )

    def precision_of(self, module_path: str) -> str:
        """Returns the precision of a module by its dotted path; ``fp32`` where no rule matches."""
        found = "fp32"
        for rule in self.policy:
            if fnmatchcase(module_path, rule.pattern):
                found = rule.precision
        return found

    def at(self, precision: Precision) -> Self:
        """Returns the plan for a file of ``precision``: a first rule that speaks of all modules becomes that one's."""
        # w8a16 and w8a8 speak of activations too; their weights are INT8.
        weights: Precision = "int8" if precision in ("w8a16", "w8a8") else precision
        first = self.policy[0] if self.policy else None
        # A file in FP32 is not reduced at all, and a mixed one follows the policy: both keep the plan as it is.
        if weights in ("fp32", "mixed") or first is None or first.pattern != EVERYTHING or first.precision == "fp32":
            return self
        rules = (Rule.model_validate({"pattern": EVERYTHING, "precision": weights}), *self.policy[1:])
        return self.model_copy(update={"precision": weights, "policy": rules})
