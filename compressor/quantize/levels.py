"""How large the integers of symmetric weights may be, and which CPUs need them smaller.

x86 CPUs without VNNI add two uint8 x int8 products in 16 bits (VPMADDUBSW), and 2 * 255 * 127 does not fit. Weights of
seven bits never reach that border. Source: ONNX Runtime, "Quantize ONNX models", section on U8S8 and reduce_range.
"""

from __future__ import annotations

from collections.abc import Collection

from compressor.core.environment import machine

FULL_LEVELS = 127
"""Largest magnitude of a symmetric int8 weight."""
REDUCED_LEVELS = 63
"""The same in seven bits: no sum of two products with a uint8 activation leaves 16 bits, 2 * 255 * 63 < 2**15."""
_X86 = frozenset({"x86_64", "amd64", "i686"})


def saturates(architecture: str, features: Collection[str]) -> bool:
    """Returns whether a CPU adds eight-bit products in 16 bits.

    Args:
        architecture: as ``platform.machine()`` or a device profile gives it.
        features: names as in ``/proc/cpuinfo``.
    """
    return architecture.lower() in _X86 and not any("vnni" in name or name == "amx_int8" for name in features)


def saturates_here() -> bool:
    """Returns whether this machine's CPU does."""
    return saturates(machine()["architecture"], machine()["cpu_features"].split())


def weight_levels(reduced_range: bool | None) -> int:
    """Returns the largest magnitude of an int8 weight: as a plan says, else what this machine needs."""
    reduced = saturates_here() if reduced_range is None else reduced_range
    return REDUCED_LEVELS if reduced else FULL_LEVELS
