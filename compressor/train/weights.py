"""How much a loss counts at each moment of a run: a constant, or a line from one value to another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from compressor.stage import StageConfig

Progress = float
"""Share of the run's steps that are done: 0 at the first step, below 1 at the last."""
WeightAt = Callable[[Progress], float]


class Ramp(StageConfig):
    """A weight that goes in a line ``from`` one value ``to`` another, and is constant before and after."""

    model_config = ConfigDict(**{**StageConfig.model_config, "validate_by_name": True, "serialize_by_alias": True})

    first: float = Field(alias="from", ge=0)
    last: float = Field(alias="to", ge=0)
    start: float = Field(default=0.0, ge=0, le=1)
    """Share of the run at which the line begins."""
    end: float = Field(default=1.0, ge=0, le=1)
    """Share of the run at which it ends; equal to ``start`` it is a step."""

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if self.start > self.end:
            raise ValueError(f"a weight that starts to change at {self.start} cannot end at {self.end}")
        if self.first == self.last == 0:
            raise ValueError("a weight that is always 0: leave the loss out")
        return self

    def at(self, progress: Progress) -> float:
        """Returns the weight at a share of the run."""
        if progress >= self.end:
            return self.last
        if progress <= self.start:
            return self.first
        return self.first + (self.last - self.first) * (progress - self.start) / (self.end - self.start)


Weight = Annotated[float, Field(gt=0)] | Ramp


class Scheduled(StageConfig):
    """Base of what counts with a weight over a part of the run."""

    weight: Weight = 1.0
    """Factor in the total; a number, or ``{from: 1.0, to: 0.0, start: 0.0, end: 1.0}``."""
    after: float = Field(default=0.0, ge=0, lt=1)
    """Share of the run from which on it counts."""
    until: float = Field(default=1.0, gt=0, le=1)
    """Share of the run up to which it counts."""

    @model_validator(mode="after")
    def _window(self) -> Self:
        if self.after >= self.until:
            raise ValueError(f"counts after {self.after} and until {self.until}: never")
        return self

    def weight_at(self, progress: Progress) -> float:
        """Returns the weight at a share of the run; 0 outside its part of it."""
        if progress < self.after or (progress >= self.until and self.until < 1):
            return 0.0
        return self.weight.at(progress) if isinstance(self.weight, Ramp) else self.weight

    def turns(self) -> tuple[float, ...]:
        """Returns the shares of the run at which the weight jumps or bends."""
        bends = (self.weight.start, self.weight.end) if isinstance(self.weight, Ramp) else ()
        return (self.after, self.until, *bends)


def check_covered(parts: Iterable[Scheduled]) -> None:
    """Refuses schedules that leave a part of the run with nothing to learn.

    Raises:
        ValueError: a share of the run at which every weight is 0.
    """
    known = tuple(parts)
    # Weights are straight between turns, so a gap shows at a turn or half-way between two.
    turns = sorted({0.0, 1.0, *(turn for part in known for turn in part.turns())})
    middles = [(low + high) / 2 for low, high in pairwise(turns)]
    for progress in sorted((*turns[:-1], *middles)):
        if not any(part.weight_at(progress) > 0 for part in known):
            raise ValueError(f"at {progress:.0%} of the run every loss has weight 0: let one of them count there")
