"""Ranges from a stream: the same however the data is cut, in fixed memory, and never blind to what matters."""

import numpy as np
import pytest

from compressor.quantize.observers import OBSERVERS, Histogram, Range, make_observer

RANDOM = np.random.default_rng(0)
NORMAL = RANDOM.standard_normal(200_000).astype(np.float32)


def observed(name, *arrays):
    observer = make_observer(name)
    for array in arrays:
        observer.update(array)
    return observer


def true_error(values, found, bits=8, symmetric=False):
    scale = found.scale(bits, symmetric=symmetric)
    zero = found.zero_point(bits, symmetric=symmetric)
    low, high = (-(2 ** (bits - 1)) + 1, 2 ** (bits - 1) - 1) if symmetric else (0, 2**bits - 1)
    restored = (np.clip(np.round(values / scale) + zero, low, high) - zero) * scale
    return float(np.mean((values - restored) ** 2))


@pytest.mark.parametrize("name", OBSERVERS)
def test_a_constant_zero_and_nothing_at_all(name):
    found = observed(name, np.zeros(9, np.float32)).range()
    assert (found.low, found.high) == (0.0, 0.0)
    assert found.scale(8, symmetric=False) == 1.0
    with pytest.raises(ValueError, match="nothing was observed"):
        observed(name, np.zeros(0, np.float32)).range()


@pytest.mark.parametrize("name", [name for name in OBSERVERS if name not in ("moving_average", "auto")])
def test_the_order_and_the_cut_of_the_data_change_nothing(name):
    whole = observed(name, NORMAL).range()
    shuffled = RANDOM.permutation(NORMAL)
    assert observed(name, *np.array_split(shuffled, 37)).range() == whole


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", OBSERVERS)
def test_every_range_is_inside_the_extremes_and_holds_the_bulk(name, symmetric):
    found = observed(name, NORMAL).range(8, symmetric)
    assert NORMAL.min() <= found.low < -2.5 and 2.5 < found.high <= NORMAL.max()


def test_one_outlier_is_clipped_by_those_that_clip_and_kept_by_min_max():
    values = np.concatenate([NORMAL, [1e5]]).astype(np.float32)
    assert observed("minmax", values).range().high == 1e5
    for name in ("percentile", "entropy"):
        assert observed(name, values).range().high < 100
    assert observed("moving_average", NORMAL, NORMAL, NORMAL, values).range().high == pytest.approx(1e5 / 4, rel=0.01)


def test_a_histogram_knows_the_error_that_rounding_really_makes():
    for values in (NORMAL, np.maximum(NORMAL, 0), np.exp(3 * NORMAL), NORMAL * 1e-3):
        histogram = Histogram()
        histogram.update(values)
        for limit in (1.0, 0.5, 0.1):
            for symmetric in (False, True):
                found = histogram.clipped(limit * float(np.abs(values).max()), "test")
                estimate = histogram.error(found, 8, symmetric)
                assert estimate == pytest.approx(true_error(values, found, symmetric=symmetric), rel=0.1)


def test_mse_beats_min_max_where_it_can_and_equals_it_where_not():
    heavy = (RANDOM.standard_t(3, 200_000)).astype(np.float32)
    uniform = RANDOM.uniform(-1, 1, 200_000).astype(np.float32)
    ranges = {name: observed(name, heavy).range() for name in ("minmax", "mse")}
    assert true_error(heavy, ranges["mse"]) < 0.8 * true_error(heavy, ranges["minmax"])
    assert observed("mse", uniform).range().high == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("values", [NORMAL, np.abs(NORMAL), RANDOM.standard_t(3, 50_000), RANDOM.uniform(0, 1, 9999)])
def test_auto_is_never_far_from_the_best(values, bits):
    best = min(true_error(values, observed(name, values).range(bits), bits) for name in OBSERVERS)
    found = observed("auto", values).range(bits)
    assert true_error(values, found, bits) <= 1.3 * best
    assert found.observer in OBSERVERS and found.observer != "auto"


def test_auto_keeps_min_max_where_clipping_gains_nothing():
    assert observed("auto", RANDOM.uniform(-1, 1, 50_000)).range().observer == "minmax"


def test_a_signed_range_keeps_zero_on_its_grid():
    one_sided = Range(2.0, 6.0)
    assert one_sided.zero_point(8, symmetric=False) == 0
    assert one_sided.scale(8, symmetric=False) == pytest.approx(6 / 255)
    assert Range(-1.0, 3.0).zero_point(8, symmetric=False) == 64
    assert Range(-1.0, 3.0).scale(8, symmetric=True) == pytest.approx(3 / 127)


def test_a_histogram_is_as_large_after_a_million_values_as_before():
    histogram = Histogram()
    size = histogram.positive.nbytes + histogram.negative.nbytes
    for _ in range(5):
        histogram.update(NORMAL)
    assert histogram.positive.nbytes + histogram.negative.nbytes == size <= 2**17
    assert histogram.magnitudes.sum() == 5 * NORMAL.size
