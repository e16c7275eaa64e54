"""Where eight-bit products saturate, and how a file says for which CPUs it was made.

x86 CPUs without VNNI add two uint8 x int8 products in 16 bits (VPMADDUBSW), and 2 * 255 * 127 does not fit. Weights of
seven bits never reach that border. Source: ONNX Runtime, "Quantize ONNX models", section on U8S8 and reduce_range.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from compressor.core.environment import machine
from compressor.quantize.plan import QuantizationPlan
from export.onnx.integers import FULL_LEVELS, REDUCED_LEVELS

logger = logging.getLogger(__name__)

METADATA_KEY = "int8_weight_levels"
_X86 = frozenset({"x86_64", "amd64", "i686"})


def saturates(architecture: str, features: Collection[str]) -> bool:
    """Returns whether a CPU adds eight-bit products in 16 bits.

    Args:
        architecture: as ``platform.machine()`` or a device profile gives it.
        features: names as in ``/proc/cpuinfo``.
    """
    return architecture.lower() in _X86 and not any("vnni" in name or name == "amx_int8" for name in features)


def weight_levels(plan: QuantizationPlan) -> int:
    """Returns the largest magnitude of an int8 weight: as the plan says, else what this machine needs."""
    reduced = _saturates_here() if plan.reduced_range is None else plan.reduced_range
    return REDUCED_LEVELS if reduced else FULL_LEVELS


def describe(metadata: Mapping[str, str]) -> str:
    """Returns what a file's metadata says about its weights, for the manifest."""
    if metadata.get(METADATA_KEY) == str(REDUCED_LEVELS):
        return "weights use seven bits (reduced range): no CPU saturates, and those with VNNI lose one bit"
    here = "saturates" if _saturates_here() else "does not saturate"
    return (
        "weights use the full range of int8 and meet uint8 activations: x86 CPUs without VNNI saturate the sum of two "
        f"such products. This machine {here}"
    )


def warn_if_saturating(metadata: Mapping[str, str], name: str) -> None:
    """Logs a warning when a full-range file runs on a CPU that saturates its products."""
    if metadata.get(METADATA_KEY) == str(FULL_LEVELS) and _saturates_here():
        logger.warning(
            "%s holds full-range int8 weights, and this CPU (%s, no VNNI) saturates their products: its answers differ "
            "from those on CPUs with VNNI; convert with reduced_range for it",
            name,
            machine()["cpu"],
        )


def _saturates_here() -> bool:
    return saturates(machine()["architecture"], machine()["cpu_features"].split())
