"""What a device can do, as plain data, and what a device lets us ask about time."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from compressor.core.artifact import Format, Precision
from compressor.core.schema import Record


class Illegal(Record):
    """A combination the device cannot run (or runs slower than the safer one), with the reason."""

    format: Format
    precision: Precision | None = None
    """None: every precision of the format."""
    families: tuple[str, ...] = ()
    """Model types it holds for, e.g. ``mobilebert``; none named: all."""
    reason: str
    instead: str


class CoreCluster(Record):
    """Cores of one kind."""

    core: str
    count: int = Field(ge=1)
    top_ghz: float | None = None
    """None where the maker does not publish it."""


class DeviceProfile(Record):
    """One kind of device; YAML files in ``devices/profiles/`` hold them."""

    name: str
    title: str
    kind: str
    """``host``, ``android``, ``linux-arm64`` or ``jetson``."""
    architecture: str
    cpu_features: tuple[str, ...] = ()
    formats: tuple[Format, ...]
    ladder: tuple[Precision, ...] = ("int8", "fp16", "fp32")
    """Precisions in the order in which they are tried, smallest first."""
    illegal: tuple[Illegal, ...] = ()
    tensorrt: str | None = None
    """Version range the device's own software brings, e.g. ``10.3`` (JetPack 6.1)."""
    clusters: tuple[CoreCluster, ...] = ()
    memory_gb: tuple[float, ...] = ()
    """Sizes it is sold with."""
    jetpack: str | None = None
    """Versions that support the board, e.g. ``5.1 - 6.2``."""
    widths_multiple_of: int | None = Field(default=None, ge=1)
    """Hidden and FFN widths that fill the vector or matrix units are multiples of this."""
    facts: dict[str, str] = Field(default_factory=dict)
    """What is known of the hardware (``clusters``, ``npu``, ``memory``, …): shown to people, never decided on."""
    sources: tuple[str, ...] = Field(default=())


class LatencyModel(Protocol):
    """Predicts a model's time on a device from its shape; pruning to milliseconds asks it."""

    def predict_ms(self, layers: int, heads: int, intermediate: int, tokens: int) -> float:
        """Returns the predicted inference time of one sentence in milliseconds."""
        ...
