"""P17: percentile and entropy clip the few values that carry the meaning; the automatic choice does not."""

import numpy as np
import pytest

from compressor.quantize.observers import make_observer


def values(share):
    """Hidden states of which a ``share`` stands far out, as one channel of trained encoders does."""
    random = np.random.default_rng(0)
    bulk = random.standard_normal(400_000).astype(np.float32)
    bulk[:: int(1 / share)] = 60.0
    return bulk


def error_of(name, array):
    observer = make_observer(name)
    for part in np.array_split(array, 50):
        observer.update(part)
    found = observer.range(8, False)
    scale, zero = found.scale(8, symmetric=False), found.zero_point(8, symmetric=False)
    restored = (np.clip(np.round(array / scale) + zero, 0, 255) - zero) * scale
    return float(np.mean((array - restored) ** 2)), found


def test_percentile_loses_what_auto_keeps():
    array = values(5e-5)
    clipped, percentile = error_of("percentile", array)
    kept, auto = error_of("auto", array)
    assert percentile.high < 10 < 40 < auto.high
    assert kept < 0.2 * clipped


@pytest.mark.parametrize("share", [1e-2, 1e-3, 1e-4, 1e-5])
def test_auto_is_never_worse_than_min_max(share):
    array = values(share)
    assert error_of("auto", array)[0] <= 1.05 * error_of("minmax", array)[0]
