"""The quantisation plan: ``quantization.json``, an ordered policy over module paths that each format realises."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from pydantic import Field

from compressor.core.artifact import Precision
from compressor.core.schema import Record
from compressor.quantize.observers import ObserverName

Method = Literal["dynamic", "static"]
"""``dynamic``: ranges of activations are found at run time; ``static``: observed before on calibration text."""


class Rule(Record):
    """Modules whose dotted path matches ``pattern`` (``*`` matches any run of characters) get ``precision``."""

    pattern: str
    precision: Literal["fp32", "fp16", "int8", "int4"]


class QuantizationPlan(Record):
    """What to quantise and how far accuracy may fall; the last matching rule wins."""

    schema_version: Literal[1] = 1
    precision: Precision = "int8"
    method: Method = "dynamic"
    policy: tuple[Rule, ...] = Field(default=(Rule(pattern="*", precision="int8"),))
    quantize_embeddings: bool = True
    observer: ObserverName = "auto"
    """How ranges of activations are found where they are fixed."""
    reduced_range: bool | None = None
    """Weights in seven bits, for x86 CPUs without VNNI, which saturate full-range products (ONNX). None: where the
    machine that makes the file is such a CPU."""
    decisions: Mapping[str, Any] = Field(default_factory=dict)
    """What the stage found as it smoothed activations or rounded weights: errors with and without, what it kept."""
    max_drop_points: float | None = None
    """Largest fall in percentage points against the checkpoint being exported; None: no limit."""

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
