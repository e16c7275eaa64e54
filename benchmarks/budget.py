"""Budgets: what an artifact may cost on a device, from a strict YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from compressor.core.errors import RecipeError, nearest
from compressor.core.limits import Limits
from compressor.core.schema import Record
from compressor.core.strict import parse, read_yaml
from devices.profiles import profile_names


class Budget(Limits):
    """Limits for the artifacts that match, on one kind of device."""

    device: str
    """A profile's name."""
    artifact: str = Field(default="*", min_length=1)
    """Which artifact folders it is for: a name, or a pattern with ``*`` and ``?``."""


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
                f"{path}: budget {number} sets no limit; expected at least one of {', '.join(Limits.model_fields)}",
                remedy="add a limit or remove the budget",
            )
    return file
