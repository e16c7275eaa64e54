"""Streaming observers: ranges of activations from any amount of data in a fixed amount of memory.

Each observer sees arrays one after another and keeps a few numbers or one histogram. The histogram is logarithmic: 64
bins for each power of two and sign, read off the bits of a float32, so one outlier costs no resolution elsewhere, and
the result does not depend on the order of the data or on how it was cut into batches.

Sources: Nagel et al. 2021, "A White Paper on Neural Network Quantization" (min-max, MSE); Migacz 2017, "8-bit Inference
with TensorRT" (entropy); Wu et al. 2020, "Integer Quantization for Deep Learning Inference" (percentile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, get_args

import numpy as np

ObserverName = Literal["minmax", "moving_average", "percentile", "entropy", "mse", "auto"]
OBSERVERS: tuple[ObserverName, ...] = get_args(ObserverName)
PERCENTILE = 99.99
"""Share of the magnitudes, in percent, that the percentile observer keeps inside the range."""
AVERAGED_BATCHES = 100
"""The moving average weighs the first so many batches equally, then forgets exponentially."""
TIE = 1.1
"""``auto`` takes the widest range whose error is within this factor of the smallest."""

_MANTISSA_BITS = 6
_SHIFT = 23 - _MANTISSA_BITS
_LOWEST_OCTAVE, _HIGHEST_OCTAVE = -32, 32
_FIRST = (127 + _LOWEST_OCTAVE) << _MANTISSA_BITS
_BINS = (_HIGHEST_OCTAVE - _LOWEST_OCTAVE) << _MANTISSA_BITS
_EDGES = ((np.arange(_FIRST, _FIRST + _BINS + 1) << _SHIFT).astype(np.uint32)).view(np.float32).astype(np.float64)
_CENTRES = np.sqrt(_EDGES[:-1] * _EDGES[1:])
_CENTRES[0] = 0.0
_STEP_OF_THRESHOLDS = 2.0**-0.125
_THRESHOLDS = 96
"""Clipping thresholds tried: from the largest magnitude downwards in eighths of an octave, twelve octaves."""


@dataclass(frozen=True)
class Range:
    """Smallest and largest value to be represented; what lies beyond is clipped."""

    low: float
    high: float
    observer: str = ""
    """Which observer set it."""

    def scale(self, bits: int, *, symmetric: bool) -> float:
        """Returns the quantisation step; zero is always on the grid. 1 where nothing but zeros was seen."""
        if symmetric:
            step = max(-self.low, self.high) / (2 ** (bits - 1) - 1)
        else:
            step = (max(self.high, 0.0) - min(self.low, 0.0)) / (2**bits - 1)
        return step if step > 0 else 1.0

    def zero_point(self, bits: int, *, symmetric: bool) -> int:
        """Returns the integer that means zero: 0 in a signed symmetric type, else one of 0 to 2**bits - 1."""
        if symmetric:
            return 0
        return int(np.clip(round(-min(self.low, 0.0) / self.scale(bits, symmetric=False)), 0, 2**bits - 1))


class Observer(Protocol):
    """Sees the values of one tensor and says which range to represent."""

    needs_extremes_only: ClassVar[bool]
    """True where the smallest and largest value of each batch say all that this observer wants to know."""

    def update(self, array: np.ndarray) -> None:
        """Takes in one more array of float values of any shape; empty arrays say nothing."""
        ...

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """Returns the range for integers of ``bits`` bits.

        Raises:
            ValueError: nothing was observed.
        """
        ...


class MinMaxObserver:
    """The smallest and largest value ever seen: clips nothing."""

    needs_extremes_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self._low, self._high = np.inf, -np.inf

    def update(self, array: np.ndarray) -> None:
        """See :class:`Observer`."""
        if array.size:
            self._low = min(self._low, float(array.min()))
            self._high = max(self._high, float(array.max()))

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """See :class:`Observer`."""
        _require(self._low <= self._high)
        return Range(self._low, self._high, "minmax")


class MovingAverageObserver:
    """Averages of each batch's smallest and largest value: a single odd batch moves little."""

    needs_extremes_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self._low, self._high, self._batches = 0.0, 0.0, 0

    def update(self, array: np.ndarray) -> None:
        """See :class:`Observer`."""
        if array.size:
            self._batches += 1
            weight = 1.0 / min(self._batches, AVERAGED_BATCHES)
            self._low += weight * (float(array.min()) - self._low)
            self._high += weight * (float(array.max()) - self._high)

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """See :class:`Observer`."""
        _require(self._batches > 0)
        return Range(self._low, self._high, "moving_average")


class Histogram:
    """Counts of positive and of negative values by magnitude; 64 KiB whatever was seen."""

    def __init__(self) -> None:
        self.positive = np.zeros(_BINS, dtype=np.int64)
        self.negative = np.zeros(_BINS, dtype=np.int64)
        self.extremes = MinMaxObserver()

    def update(self, array: np.ndarray) -> None:
        """Adds values; magnitudes below 2**-32 count as zero, above 2**32 as the largest bin."""
        values = np.ascontiguousarray(array, dtype=np.float32).ravel()
        self.extremes.update(values)
        bins = (values.view(np.int32) & 0x7FFFFFFF) >> _SHIFT
        np.clip(bins - _FIRST, 0, _BINS - 1, out=bins)
        bins[values < 0] += _BINS
        counts = np.bincount(bins, minlength=2 * _BINS)
        self.positive += counts[:_BINS]
        self.negative += counts[_BINS:]

    @property
    def magnitudes(self) -> np.ndarray:
        """Counts by magnitude alone, shape (bins,)."""
        return self.positive + self.negative

    def clipped(self, threshold: float, observer: str) -> Range:
        """Returns the observed extremes, cut to ``[-threshold, threshold]``."""
        whole = self.extremes.range()
        return Range(max(whole.low, -threshold), min(whole.high, threshold), observer)

    def thresholds(self) -> np.ndarray:
        """Returns the clipping thresholds worth trying, the largest magnitude first."""
        whole = self.extremes.range()
        return max(-whole.low, whole.high) * _STEP_OF_THRESHOLDS ** np.arange(_THRESHOLDS)

    def error(self, found: Range, bits: int, symmetric: bool) -> float:
        """Returns the mean squared error of representing the values by ``bits``-bit integers over a range.

        Inside the range rounding costs step²/12, or the value's own square where it rounds to zero; beyond it the
        distance to the border counts.
        """
        step = found.scale(bits, symmetric=symmetric)
        high = max(-found.low, found.high) if symmetric else max(found.high, 0.0)
        low = high if symmetric else max(-found.low, 0.0)
        inside = np.where(step / 2 > _CENTRES, _CENTRES**2, step**2 / 12)
        total = 0.0
        for counts, border in ((self.positive, high), (self.negative, low)):
            total += float(counts @ np.where(border < _CENTRES, (_CENTRES - border) ** 2, inside))
        return total / max(1, int(self.positive.sum() + self.negative.sum()))


class _HistogramObserver:
    needs_extremes_only: ClassVar[bool] = False

    def __init__(self, histogram: Histogram | None = None) -> None:
        self.histogram = histogram or Histogram()

    def update(self, array: np.ndarray) -> None:
        """See :class:`Observer`."""
        if array.size:
            self.histogram.update(array)


class PercentileObserver(_HistogramObserver):
    """Clips the largest magnitudes: ``PERCENTILE`` per cent stay inside."""

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """See :class:`Observer`."""
        _require(bool(self.histogram.magnitudes.any()))
        reached = np.cumsum(self.histogram.magnitudes)
        index = int(np.searchsorted(reached, PERCENTILE / 100 * reached[-1]))
        return self.histogram.clipped(float(_EDGES[index + 1]), "percentile")


class EntropyObserver(_HistogramObserver):
    """The clipping threshold whose quantised distribution diverges least (Kullback-Leibler) from the observed one."""

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """See :class:`Observer`."""
        if not self.histogram.magnitudes[1:].any():
            return self.histogram.clipped(np.inf, "entropy")
        thresholds = self.histogram.thresholds()
        two_sided = symmetric or self.histogram.negative.any()
        levels = 2 ** (bits - 1) if two_sided else 2**bits
        divergences = [_divergence(self.histogram.magnitudes, float(threshold), levels) for threshold in thresholds]
        return self.histogram.clipped(float(thresholds[int(np.argmin(divergences))]), "entropy")


class MSEObserver(_HistogramObserver):
    """The clipping threshold with the smallest mean squared error."""

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """See :class:`Observer`."""
        candidates = [self.histogram.clipped(float(t), "mse") for t in self.histogram.thresholds()]
        return min(candidates, key=lambda found: self.histogram.error(found, bits, symmetric))


class AutoObserver(_HistogramObserver):
    """Asks all observers and measures each answer's error on the histogram.

    The widest range within ``TIE`` of the smallest error wins: encoders carry meaning in a few large values, so they
    are clipped only where that pays (https://github.com/microsoft/onnxruntime/issues/10571).
    """

    def __init__(self) -> None:
        super().__init__()
        self._average = MovingAverageObserver()

    def update(self, array: np.ndarray) -> None:
        """See :class:`Observer`."""
        values = np.asarray(array, dtype=np.float32)
        super().update(values)
        self._average.update(values)

    def range(self, bits: int = 8, symmetric: bool = False) -> Range:
        """See :class:`Observer`."""
        others = (PercentileObserver, EntropyObserver, MSEObserver)
        candidates = [self.histogram.extremes.range(), self._average.range()]
        candidates += [make(self.histogram).range(bits, symmetric) for make in others]
        errors = [self.histogram.error(found, bits, symmetric) for found in candidates]
        good = [found for found, error in zip(candidates, errors, strict=True) if error <= TIE * min(errors)]
        return max(good, key=lambda found: found.high - found.low)


def make_observer(name: ObserverName) -> Observer:
    """Returns a fresh observer."""
    makers: dict[ObserverName, type[Observer]] = {
        "minmax": MinMaxObserver,
        "moving_average": MovingAverageObserver,
        "percentile": PercentileObserver,
        "entropy": EntropyObserver,
        "mse": MSEObserver,
        "auto": AutoObserver,
    }
    return makers[name]()


def _divergence(counts: np.ndarray, threshold: float, levels: int) -> float:
    """Kullback-Leibler divergence of the values clipped at ``threshold`` from their form in ``levels`` steps.

    A level's mass is spread over the bins it covers, by their width. Exact zeros are left out: they stay exact.
    """
    inside = max(1, int(np.searchsorted(_CENTRES, threshold)) - 1)
    observed = counts[1 : inside + 1].astype(np.float64)
    kept = observed.copy()
    kept[-1] += counts[inside + 1 :].sum()
    level = np.minimum(_CENTRES[1 : inside + 1] / threshold * levels, levels - 1).astype(np.int64)
    width = np.where(observed > 0, np.diff(_EDGES)[1 : inside + 1], 0.0)
    mass = np.bincount(level, weights=observed, minlength=levels)
    room = np.bincount(level, weights=width, minlength=levels)
    quantized = width * (mass / np.maximum(room, 1e-300))[level]
    if not quantized.any():
        return 0.0
    p, q = kept / kept.sum(), quantized / quantized.sum()
    used = p > 0
    return float(np.sum(p[used] * np.log(p[used] / np.maximum(q[used], 1e-12))))


def _require(observed: bool) -> None:
    if not observed:
        raise ValueError("nothing was observed")
