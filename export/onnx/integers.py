"""Weights as symmetric eight-bit integers."""

from __future__ import annotations

import numpy as np

from compressor.quantize.levels import FULL_LEVELS


def quantize_columns(weight: np.ndarray, levels: int = FULL_LEVELS) -> tuple[np.ndarray, np.ndarray]:
    """Returns symmetric integers and one scale a column for a (inputs, outputs) weight matrix.

    Returns:
        int8 of shape (inputs, outputs), and float32 scales of shape (outputs,).
    """
    scales = _scales(np.abs(weight).max(axis=0, initial=0.0), levels)
    return np.clip(np.rint(weight / scales), -levels, levels).astype(np.int8), scales


def quantize_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns symmetric integers and one scale a row for a (rows, width) lookup table.

    With a scale of its own, a row of huge norm (often an unused piece of the vocabulary) costs the others nothing.

    Returns:
        int8 of shape (rows, width), and float32 scales of shape (rows, 1).
    """
    scales = _scales(np.abs(table).max(axis=1, keepdims=True, initial=0.0), FULL_LEVELS)
    return np.clip(np.rint(table / scales), -FULL_LEVELS, FULL_LEVELS).astype(np.int8), scales


def _scales(largest: np.ndarray, levels: int) -> np.ndarray:
    scales = (largest / levels).astype(np.float32)
    return np.where(scales > 0, scales, np.float32(1.0))
