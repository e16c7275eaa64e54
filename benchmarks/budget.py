"""Budgets: what an artifact may cost on a device, from a strict YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from compressor.core.errors import RecipeError, nearest
from compressor.core.schema import Record
from compressor.core.strict import parse, read_yaml
from devices.profiles import profile_names

Limit = Annotated[float | None, Field(default=None, gt=0, strict=True, allow_inf_nan=False)]
_TARGETS = ("device", "artifact")


class Budget(Record):
    """Limits for the artifacts that match, on one kind of device."""

    device: str
    """A profile's name."""
    artifact: str = Field(default="*", min_length=1)
    """Which artifact folders it is for: a name, or a pattern with ``*`` and ``?``."""
    p50_ms: Limit = None
    p90_ms: Limit = None
    p95_ms: Limit = None
    p99_ms: Limit = None
    """Percentiles of the inference time of one sentence at its own length."""
    total_p95_ms: Limit = None
    """Tokenisation included."""
    cold_ms: Limit = None
    """First inference of a fresh process; the slowest of all processes counts."""
    peak_memory_mb: Limit = None
    """Resident memory of the measuring process, in units of 10^6 bytes, runtime and tokenizer included."""
    size_mb: Limit = None
    """Model files only, in units of 10^6 bytes."""
    accuracy_drop_points: Annotated[float | None, Field(default=None, ge=0, strict=True, allow_inf_nan=False)] = None
    """Percentage points below the reference in the artifact's manifest (the teacher, else its checkpoint)."""

    def limits(self) -> dict[str, float]:
        """Returns {key: limit} of the limits that are set."""
        values = self.model_dump(exclude=set(_TARGETS), exclude_none=True)
        return {name: float(value) for name, value in values.items()}


LIMITS = tuple(name for name in Budget.model_fields if name not in _TARGETS)


class BudgetFile(Record):
    """A whole ``budgets.yaml``."""

    version: Literal[1]
    budgets: tuple[Budget, ...] = Field(min_length=1)

    def for_device(self, profile: str) -> tuple[Budget, ...]:
        """Returns the budgets of one kind of device.

        Raises:
            RecipeError: there are none.
        """
        found = tuple(budget for budget in self.budgets if budget.device == profile)
        if not found:
            known = sorted({budget.device for budget in self.budgets})
            raise RecipeError(
                f"no budget is for device '{profile}'; the file has budgets for {', '.join(known)}",
                remedy="add one, or name another --device",
            )
        return found


def load_budgets(path: Path) -> BudgetFile:
    """Reads a budget file.

    Raises:
        RecipeError: the file cannot be read, has an unknown or repeated key, a value of the wrong kind, an unknown
            device or a budget without limits; the message names the place.
    """
    file = parse(BudgetFile, read_yaml(path), where=path.name)
    for number, budget in enumerate(file.budgets, 1):
        if budget.device not in profile_names():
            raise RecipeError(
                f"{path}: budget {number} is for unknown device '{budget.device}'; expected a profile's name",
                remedy=nearest(budget.device, profile_names()),
            )
        if not budget.limits():
            raise RecipeError(
                f"{path}: budget {number} sets no limit; expected at least one of {', '.join(LIMITS)}",
                remedy="add a limit or remove the budget",
            )
    return file
