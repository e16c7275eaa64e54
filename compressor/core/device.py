"""What a device can do, as plain data."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from compressor.core.artifact import Format, Precision
from compressor.core.schema import Record

LadderStep = Literal["int4", "int8-static", "int8-mixed", "int8-dynamic", "fp16", "fp32"]
"""One try of the precision ladder: a precision and, for INT8, how the ranges of activations are found."""
CPU_LADDER: tuple[LadderStep, ...] = ("int8-dynamic", "int8-mixed", "int8-static", "fp16", "fp32")
"""Dynamic first: on CPUs it is as accurate as INT8 gets, needs no calibration, and was measured faster than static."""


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


class Hexagon(Record):
    """The NPU of a Snapdragon, as its compiler names it; ``benchmarks/studies/qnn_socs.py`` measures the facts."""

    soc_model: int = Field(gt=0)
    """The SoC's number in Qualcomm's AI Engine Direct SDK, e.g. 57 for SM8650."""
    arch: int = Field(gt=0)
    """Hexagon generation, e.g. 75 for v75."""
    precisions: tuple[Precision, ...]
    """What an encoder compiles to as a whole, the smallest first: the NPU's ladder. Empty: CPU only."""


class DeviceProfile(Record):
    """One kind of device; YAML files in ``devices/profiles/`` hold them."""

    name: str
    title: str
    kind: str
    """``host``, ``android``, ``linux-arm64`` or ``jetson``."""
    architecture: str
    cpu_features: tuple[str, ...] = ()
    formats: tuple[Format, ...]
    ladder: tuple[LadderStep, ...] = CPU_LADDER
    """What is tried, in order, when a limit on the accuracy is given; the first within it is taken."""
    illegal: tuple[Illegal, ...] = ()
    tensorrt: str | None = None
    """Version range the device's own software brings, e.g. ``10.3`` (JetPack 6.1)."""
    clusters: tuple[CoreCluster, ...] = ()
    memory_gb: tuple[float, ...] = ()
    """Sizes it is sold with."""
    jetpack: str | None = None
    """Versions that support the board, e.g. ``5.1 - 7.2``."""
    widths_multiple_of: int | None = Field(default=None, ge=1)
    """Hidden and FFN widths that fill the vector or matrix units are multiples of this."""
    hexagon: Hexagon | None = None
    """The NPU for which ``onnx-qnn`` compiles; None: there is none."""
    facts: dict[str, str] = Field(default_factory=dict)
    """What is known of the hardware (``clusters``, ``npu``, ``memory``, …): shown to people, never decided on."""
    sources: tuple[str, ...] = Field(default=())

    def refusal(
        self, format_name: Format, precision: Precision | None = None, *, family: str | None = None
    ) -> Illegal | None:
        """Returns why the device cannot run (or should not run) a combination, or None where it can.

        Args:
            format_name: the artifact's format.
            precision: the artifact's precision; None asks for the format as a whole.
            family: the model's type, e.g. ``mobilebert``; None asks only for what holds for every family.
        """
        for rule in self.illegal:
            concerns = not rule.families or family in rule.families
            if concerns and rule.format == format_name and rule.precision in (None, precision):
                return rule
        computes = self.hexagon.precisions if self.hexagon is not None else ()
        if format_name == "onnx-qnn" and computes and precision is not None and precision not in computes:
            return Illegal(
                format=format_name,
                precision=precision,
                reason=f"its Hexagon v{self.hexagon.arch if self.hexagon else 0} does not compute in {precision}",
                instead=" or ".join(computes),
            )
        if format_name not in self.formats:
            return Illegal(
                format=format_name, reason=f"{self.title} has no runtime for it", instead=" or ".join(self.formats)
            )
        return None
