"""Budgets: what an artifact may cost on a device, from a strict YAML file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from benchmarks.statistics import PERCENTILES
from compressor.core.errors import RecipeError, nearest
from compressor.core.limits import MEASURED, Limit, Limits
from compressor.core.schema import Record
from compressor.core.strict import parse, read_yaml
from devices.profiles import profile_names

REGRESSIONS = {"p50_regression_percent": 0.50, "p95_regression_percent": 0.95}
"""Budget keys that bound how much slower than a baseline an artifact may be, and the percentile they compare."""
SHARES = {**PERCENTILES, "total_p95_ms": 0.95}
"""Budget keys that bound a percentile of single times, and the share of runs that must not exceed it."""
_BY_LENGTH = re.compile(r"by_length\.(\d+)\.(\w+)")
_UNITS = ("_ms", "_mb", "_points", "_percent")


class LengthLimits(Record):
    """Limits for the sentences that run at one length."""

    p50_ms: Limit = None
    p90_ms: Limit = None
    p95_ms: Limit = None
    p99_ms: Limit = None


class Budget(Limits):
    """Limits for the artifacts that match, on one kind of device."""

    device: str
    """A profile's name."""
    artifact: str = Field(default="*", min_length=1)
    """Which artifact folders it is for: a name, or a pattern with ``*`` and ``?``."""
    by_length: dict[Annotated[int, Field(gt=0)], LengthLimits] = Field(default_factory=dict)
    """Length bucket in tokens to its own limits."""
    accuracy_floor: Annotated[float | None, Field(default=None, gt=0, le=1, strict=True, allow_inf_nan=False)] = None
    """The artifact's metric in its manifest may not be below this fraction."""
    p50_regression_percent: Annotated[float | None, Field(default=None, ge=0, strict=True, allow_inf_nan=False)] = None
    p95_regression_percent: Annotated[float | None, Field(default=None, ge=0, strict=True, allow_inf_nan=False)] = None
    """How many percent above the baseline's the artifact's percentile of inference may lie; needs a baseline."""

    def limits(self) -> dict[str, float]:
        """Returns {key: limit} of the limits that are set; a bucket's key is ``by_length.32.p95_ms``."""
        found = super().limits()
        own = self.model_dump(include={"accuracy_floor", *REGRESSIONS}, exclude_none=True)
        found |= {name: float(value) for name, value in own.items()}
        for length, limits in sorted(self.by_length.items()):
            named = limits.model_dump(exclude_none=True)
            found |= {f"by_length.{length}.{name}": float(value) for name, value in named.items()}
        return found

    @property
    def needs_times(self) -> bool:
        """Whether any limit needs a measurement."""
        return any(name in MEASURED or name in REGRESSIONS or share_of(name) is not None for name in self.limits())

    @property
    def needs_baseline(self) -> bool:
        """Whether any limit compares with a baseline."""
        return any(name in REGRESSIONS for name in self.limits())


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


def share_of(name: str) -> float | None:
    """Returns the share of runs that a percentile key bounds, a bucket's included; None for any other key."""
    bucket = bucket_of(name)
    return SHARES.get(name if bucket is None else bucket[1])


def bucket_of(name: str) -> tuple[int, str] | None:
    """Returns (length, key) of a key such as ``by_length.32.p95_ms``; None for any other."""
    match = _BY_LENGTH.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def load_budgets(path: Path) -> BudgetFile:
    """Reads a budget file.

    Raises:
        RecipeError: the file cannot be read, has an unknown or repeated key, a value of the wrong kind, a key without
            its unit, an unknown device or a budget without limits; the message names the place.
    """
    if not path.exists():
        raise RecipeError(
            f"{path} does not exist; expected a budget file",
            remedy=f"write one with: compressor gate --init ARTIFACT --budget {path}",
        )
    value = read_yaml(path)
    _check_units(path, value)
    file = parse(BudgetFile, value, where=path.name)
    for number, budget in enumerate(file.budgets, 1):
        if budget.device not in profile_names():
            raise RecipeError(
                f"{path}: budget {number} is for unknown device '{budget.device}'; expected a profile's name",
                remedy=nearest(budget.device, profile_names()),
            )
        empty = [str(length) for length, limits in budget.by_length.items() if not limits.model_dump(exclude_none=True)]
        if not budget.limits() or empty:
            what = f"sets no limit for length {empty[0]}" if empty else "sets no limit"
            known = LengthLimits.model_fields if empty else _limit_keys()
            raise RecipeError(
                f"{path}: budget {number} {what}; expected at least one of {', '.join(known)}",
                remedy="add a limit or remove the budget",
            )
    return file


def _limit_keys() -> tuple[str, ...]:
    return (*Limits.model_fields, "by_length", "accuracy_floor", *REGRESSIONS)


def _check_units(path: Path, value: Any) -> None:
    """Refuses keys whose unit is missing and fractions that were written as percentages, in words of their own."""
    budgets = value.get("budgets") if isinstance(value, dict) else None
    for number, budget in enumerate(budgets if isinstance(budgets, list) else [], 1):
        if not isinstance(budget, dict):
            continue
        lengths = budget.get("by_length")
        inner = list(lengths.values()) if isinstance(lengths, dict) else []
        for keys in (budget, *(item for item in inner if isinstance(item, dict))):
            for key, limit in keys.items():
                meant = [f"{key}{unit}" for unit in _UNITS if f"{key}{unit}" in _limit_keys()]
                if meant:
                    raise RecipeError(
                        f"{path}: budget {number}: '{key}' has no unit; expected '{meant[0]}'",
                        remedy=f"write '{meant[0]}: NUMBER': the unit stands in the key, the value is the number alone",
                    )
                percentage = key in ("accuracy_floor", "delegated") and isinstance(limit, int | float) and limit > 1
                if percentage and not isinstance(limit, bool):
                    raise RecipeError(
                        f"{path}: budget {number}: {key} is {limit:g}; expected a fraction of 0 to 1",
                        remedy=f"write {limit / 100:g} for {limit:g} %",
                    )
