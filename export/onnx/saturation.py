"""How an ONNX file says for which CPUs its integer weights were made; see :mod:`compressor.quantize.levels`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from compressor.core.environment import machine
from compressor.quantize.levels import FULL_LEVELS, REDUCED_LEVELS, saturates_here

logger = logging.getLogger(__name__)

METADATA_KEY = "int8_weight_levels"


def describe(metadata: Mapping[str, str]) -> str:
    """Returns what a file's metadata says about its weights, for the manifest."""
    if metadata.get(METADATA_KEY) == str(REDUCED_LEVELS):
        return "weights use seven bits (reduced range): no CPU saturates, and those with VNNI lose one bit"
    here = "saturates" if saturates_here() else "does not saturate"
    return (
        "weights use the full range of int8 and meet uint8 activations: x86 CPUs without VNNI saturate the sum of two "
        f"such products. This machine {here}"
    )


def warn_if_saturating(metadata: Mapping[str, str], name: str) -> None:
    """Logs a warning when a full-range file runs on a CPU that saturates its products."""
    if metadata.get(METADATA_KEY) == str(FULL_LEVELS) and saturates_here():
        logger.warning(
            "%s holds full-range int8 weights, and this CPU (%s, no VNNI) saturates their products: its answers differ "
            "from those on CPUs with VNNI; convert with reduced_range for it",
            name,
            machine()["cpu"],
        )
