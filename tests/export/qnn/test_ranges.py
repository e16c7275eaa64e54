"""Ranges: what is kept of them for few steps, and what of masked scores."""

import numpy as np
import pytest

from export.qnn.masks import NPU_FILL
from export.qnn.ranges import BINS, MASK_MARGIN, Histogram, clipped, without_mask


def histogram(values: np.ndarray) -> Histogram:
    low, high = float(values.min()), float(values.max())
    return Histogram(low, high, np.histogram(values, bins=BINS, range=(low, high))[0])


def quantized(values: np.ndarray, low: float, high: float, steps: int) -> np.ndarray:
    step = (high - low) / (steps - 1)
    return np.clip(np.round((values - low) / step), 0, steps - 1) * step + low


@pytest.mark.parametrize("steps", [2**8, 2**16])
def test_clipping_never_loses_against_the_whole_range(steps):
    values = np.random.default_rng(0).standard_t(2, size=20_000)
    found = clipped(histogram(values), steps)
    error = {name: np.square(values - quantized(values, *bounds, steps)).mean()
             for name, bounds in {"clipped": found, "whole": (values.min(), values.max())}.items()}  # fmt: skip
    assert error["clipped"] <= error["whole"] * 1.01
    assert found[0] <= 0 <= found[1]


def test_an_outlier_is_clipped_in_8_bits_and_kept_in_16():
    values = np.append(np.random.default_rng(0).normal(size=100_000), 60.0)
    found = histogram(values)
    assert clipped(found, 2**8)[1] < 60
    assert clipped(found, 2**16)[1] == 60


def test_a_constant_keeps_zero_in_its_range():
    assert clipped(histogram(np.full(10, 3.0)), 256) == (0.0, 3.0)


def test_masked_scores_lose_their_masked_part():
    scores = np.concatenate([np.linspace(-5, 12, 1000), np.linspace(NPU_FILL - 5, NPU_FILL + 12, 500)])
    found = without_mask(histogram(scores))
    assert found.low == pytest.approx(-5 - MASK_MARGIN, abs=0.1) and found.high == pytest.approx(12)
    plain = histogram(np.linspace(-5, 12, 1000))
    assert without_mask(plain) is plain
