"""What a device lets us ask about time: one encoder layer's milliseconds at some widths, measured there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from compressor.core.artifact import Format, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError, UsageError
from compressor.core.schema import Record
from compressor.core.stored import read_record


class LatencyModel(Record):
    """Times of one encoder layer of one architecture on one device; pruning to milliseconds asks it."""

    schema_version: Literal[1] = 1
    device: str
    """Where it was measured, e.g. ``snapdragon-865@adb:SERIAL``."""
    format: Format
    precision: Precision
    threads: int = Field(ge=1)
    model_type: str
    """Of the model whose layers were measured, e.g. ``bert``."""
    hidden_size: int = Field(ge=1)
    head_size: int = Field(ge=1)
    tokens: int = Field(ge=1)
    idle_ms: float = Field(ge=0)
    """Time of the model without any layer: embeddings, pooler, head."""
    heads: tuple[int, ...] = Field(min_length=1)
    """Ascending."""
    intermediate: tuple[int, ...] = Field(min_length=1)
    """Feed-forward widths, ascending."""
    layer_ms: tuple[tuple[float, ...], ...]
    """One row for each of ``heads``, one column for each of ``intermediate``."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        rows = {len(row) for row in self.layer_ms}
        if len(self.layer_ms) != len(self.heads) or rows != {len(self.intermediate)}:
            raise ValueError("layer_ms needs a row for each of heads and a column for each of intermediate")
        if any(list(axis) != sorted(set(axis)) for axis in (self.heads, self.intermediate)):
            raise ValueError("heads and intermediate must ascend")
        if min(map(min, self.layer_ms)) < 0 or max(map(max, self.layer_ms)) == 0:
            raise ValueError("layer_ms must not be negative, nor zero throughout")
        return self

    @classmethod
    def load(cls, file: Path) -> LatencyModel:
        """Reads a table.

        Raises:
            UsageError: no such file, or no such table.
        """
        return read_record(
            cls,
            file,
            error=UsageError,
            remedy="measure one with: python -m benchmarks.studies.layer_costs MODEL --device D",
        )

    def check(
        self, *, model_type: str, hidden_size: int, head_size: int, tokens: int, device: str | None = None
    ) -> None:
        """Refuses a table that says nothing of a model, a length or a device.

        Args:
            model_type: of the model that is to be pruned.
            hidden_size: of the layers that will run.
            head_size: likewise.
            tokens: length at which the time is limited.
            device: name of the profile that is pruned for; None: whichever the table is of.

        Raises:
            RecipeError: it was measured for something else.
        """
        wanted = {"model_type": model_type, "hidden_size": hidden_size, "head_size": head_size, "tokens": tokens}
        found = {name: getattr(self, name) for name in wanted}
        if device is not None:
            wanted["device"], found["device"] = device.partition("@")[0], self.device.partition("@")[0]
        differing = [name for name, value in wanted.items() if found[name] != value]
        if differing:
            raise RecipeError(
                f"the latency model of {self.device} holds times for "
                f"{', '.join(f'{name} {found[name]}' for name in differing)}; asked for "
                f"{', '.join(f'{name} {wanted[name]}' for name in differing)}",
                remedy="measure a table for this model, length and device, or name the one that fits",
            )

    def predict_ms(self, layers: int, heads: int, intermediate: int) -> float:
        """Returns the time of one sentence of ``tokens``: bilinear in the widths; beyond the table its slope goes on.

        Args:
            layers: how many layers of these widths.
            heads: attention heads of each.
            intermediate: feed-forward width of each, all its networks together.
        """
        columns = [_interpolate(self.intermediate, row, intermediate) for row in self.layer_ms]
        return self.idle_ms + layers * max(0.0, _interpolate(self.heads, columns, heads))


LatencySource = Callable[[str, Checkpoint, int], LatencyModel]
"""Returns the latency model of a named device for a checkpoint's layers at a number of tokens."""


def _interpolate(at: tuple[int, ...], values: Sequence[float], x: int) -> float:
    if len(at) == 1:
        return values[0]
    left = min(max(bisect_right(at, x) - 1, 0), len(at) - 2)
    share = (x - at[left]) / (at[left + 1] - at[left])
    return values[left] + share * (values[left + 1] - values[left])
