"""The settings of ``prune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from compressor.prune.importance import Method
from compressor.stage import StageConfig

Ratio = Annotated[float, Field(ge=0, lt=1)]


class Budget(StageConfig):
    """What the pruned model may cost; one limit, reached by taking the same share of heads and neurons."""

    parameters: int | None = Field(default=None, gt=0)
    """Of the whole model, each shared weight once."""
    mflops: float | None = Field(default=None, gt=0)
    """Millions of operations (a multiply-add is two) of the encoder for one sentence of ``tokens``."""
    ms: float | None = Field(default=None, gt=0)
    """Predicted milliseconds of one sentence of ``tokens``, by the latency model that ``prune`` names."""
    tokens: int = Field(default=32, gt=0)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(limit is not None for limit in (self.parameters, self.mflops, self.ms)) != 1:
            raise ValueError("set one of 'parameters', 'mflops' and 'ms'")
        return self


class PruneConfig(StageConfig):
    """Settings of ``prune``; what is named is removed, in the order layers, heads and neurons, hidden channels."""

    heads: Ratio = 0.0
    """Share of all attention heads to remove."""
    ffn: Ratio = 0.0
    """Share of all feed-forward neurons to remove."""
    budget: Budget | None = None
    """Instead of ``heads`` and ``ffn``: the least share of both that keeps within a cost."""
    latency: str | None = None
    """For a budget in ``ms``: JSON file of a :class:`compressor.core.latency.LatencyModel`, or a device to measure."""
    drop_layers: Annotated[int, Field(ge=0)] | tuple[int, ...] = 0
    """How many layers to remove, the least important first; or which, counted from zero."""
    hidden: int | None = Field(default=None, gt=0)
    """Channels of the hidden states to keep: those whose weights are largest, whatever ``importance`` says."""
    importance: Method = "taylor"
    uniform: bool = False
    """The same number of heads and neurons in every layer; else one ranking over all layers decides."""
    multiple_of: int | None = Field(default=None, gt=0)
    """Feed-forward widths become multiples of this; default the device's own, else 1."""
    device: str | None = None
    """Device whose kernels the widths are to fill."""
    sentences: int = Field(default=256, gt=0)
    """Training sentences on which importance is found."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        ratios = self.heads > 0 or self.ffn > 0
        if self.budget is not None and ratios:
            raise ValueError("a 'budget' decides how much goes: leave 'heads' and 'ffn' out")
        if (self.budget is None or self.budget.ms is None) != (self.latency is None):
            raise ValueError("'budget: {ms: …}' and 'latency' go together: times are predicted by a device's table")
        if not (ratios or self.budget or self.drop_layers or self.hidden):
            raise ValueError("say what to remove: 'heads', 'ffn', 'budget', 'drop_layers' or 'hidden'")
        if not self.cuts and (idle := {"importance", "uniform", "multiple_of"} & self.model_fields_set):
            raise ValueError(f"'{min(idle)}' is of heads and neurons, of which none are to go: leave it out")
        return self

    @property
    def latency_file(self) -> Path | None:
        """The file that ``latency`` names; None where it names a device, or nothing."""
        named = None if self.latency is None else Path(self.latency)
        return named if named is not None and (named.suffix == ".json" or named.is_file()) else None

    @property
    def cuts(self) -> bool:
        """Whether heads or neurons are to go."""
        return self.budget is not None or self.heads > 0 or self.ffn > 0
