"""Ranges of activations, observed on text, and how much of each to keep for a number of quantisation steps."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from compressor.core.spread import spread
from export.calibration import Calibration
from export.onnx import files
from export.qnn.masks import NPU_FILL

BINS = 2048
SENTENCES = 128
"""Calibration sentences that are run; ranges of an encoder settle well before."""
MASK_MARGIN = 8.0
"""Masked scores are kept this far below the lowest score of text: exp(-8) is 3e-4 of it, and the row's largest weighs
far more."""
_SHRINKAGES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
_ERRORS_ONLY = 3


@dataclass(frozen=True)
class Histogram:
    """Values of one tensor over all calibration sentences."""

    low: float
    high: float
    counts: np.ndarray
    """How many values fell into each of BINS equal bins from ``low`` to ``high``."""

    @property
    def centers(self) -> np.ndarray:
        """The middle of each bin."""
        edges = np.linspace(self.low, self.high, BINS + 1)
        return np.asarray((edges[:-1] + edges[1:]) / 2)

    @property
    def variance(self) -> float:
        """Of the values, to the width of a bin; there must be some."""
        mean = np.average(self.centers, weights=self.counts)
        return float(np.average((self.centers - mean) ** 2, weights=self.counts))


def observe(model: ir.Model, tensors: Sequence[str], calibration: Calibration) -> dict[str, Histogram]:
    """Runs calibration text through a float graph, one sentence at a time, padded to its length bucket.

    Args:
        model: the float graph, with a dynamic token dimension.
        tensors: names of float values in it.
        calibration: the text; SENTENCES from all over it are used.

    Returns:
        The histogram of every tensor that occurs.
    """
    lows, highs = dict.fromkeys(tensors, np.inf), dict.fromkeys(tensors, -np.inf)
    counts = {name: np.zeros(BINS, dtype=np.int64) for name in tensors}
    with _values(model, tensors, calibration) as values:
        for name, found in values():
            lows[name] = min(lows[name], float(found.min()))
            highs[name] = max(highs[name], float(found.max()))
        for name, found in values():
            counts[name] += _count(found, lows[name], highs[name])
    return {name: Histogram(lows[name], highs[name], counts[name]) for name in tensors}


def channel_maxima(model: ir.Model, tensors: Sequence[str], calibration: Calibration) -> dict[str, np.ndarray]:
    """Returns the largest absolute value of every channel (the last dimension) of some float values of a graph."""
    maxima: dict[str, np.ndarray] = {}
    with _values(model, tensors, calibration) as values:
        for name, found in values():
            largest = np.abs(found).reshape(-1, found.shape[-1]).max(axis=0)
            maxima[name] = np.maximum(maxima.get(name, largest), largest)
    return maxima


def clipped(found: Histogram, steps: int) -> tuple[float, float]:
    """Returns the range, within the observed one, that quantises to ``steps`` steps with the least squared error.

    Widely spread outliers are clipped where the finer step is worth more than their loss (as in Banner et al. 2019,
    https://arxiv.org/abs/1810.05723, by search instead of an assumed distribution). Zero stays within.
    """
    if not found.counts.any() or found.high <= found.low:
        return min(found.low, 0.0), max(found.high, 0.0)
    best, least = (found.low, found.high), np.inf
    for left in _SHRINKAGES:
        for right in _SHRINKAGES:
            low, high = min(found.low * left, 0.0), max(found.high * right, 0.0)
            error = _noise(found, low, high, steps)
            if error < least:
                best, least = (low, high), error
    return best


def kept_ratio_db(found: Histogram, low: float, high: float, steps: int) -> float:
    """Returns the variance of the values over the squared error of ``steps`` steps from low to high, in decibel.

    Infinite for a constant, which has no signal to lose.
    """
    noise = _noise(found, low, high, steps)
    if not found.counts.any() or found.high <= found.low or noise == 0:
        return np.inf
    return 10 * float(np.log10(found.variance / noise)) if found.variance > 0 else np.inf


def _noise(found: Histogram, low: float, high: float, steps: int) -> float:
    """Returns the mean squared error of clipping to a range and of rounding to equal steps in it (step² / 12)."""
    centers, weights = found.centers, found.counts / max(found.counts.sum(), 1)
    outside = centers - np.clip(centers, low, high)
    return float((weights * outside**2).sum()) + ((high - low) / (steps - 1)) ** 2 / 12


def without_mask(found: Histogram) -> Histogram:
    """Returns masked scores without their masked part: what is left of it lies MASK_MARGIN below the lowest of text.

    Quantised values saturate, so every masked score becomes that lowest one.
    """
    text = found.centers > NPU_FILL / 2
    if found.low > NPU_FILL / 2 or not found.counts[text].any():
        return found
    occupied = np.flatnonzero(text & (found.counts > 0))
    low = float(found.centers[occupied[0]]) - MASK_MARGIN
    return Histogram(low, found.high, _count(found.centers[occupied], low, found.high, found.counts[occupied]))


def _count(values: np.ndarray, low: float, high: float, weights: np.ndarray | None = None) -> np.ndarray:
    if high <= low:
        counts = np.zeros(BINS, dtype=np.int64)
        counts[0] = values.size
        return counts
    return np.asarray(np.histogram(values, bins=BINS, range=(low, high), weights=weights)[0], dtype=np.int64)


@contextmanager
def _values(
    model: ir.Model, tensors: Sequence[str], calibration: Calibration
) -> Iterator[Callable[[], Iterator[tuple[str, np.ndarray]]]]:
    """Hands out a function that runs SENTENCES calibration sentences and yields each tensor of each by name."""
    few = replace(calibration, texts=[calibration.texts[at] for at in spread(len(calibration), SENTENCES)])
    feeds = [{name: array.astype(np.int32) for name, array in batch.items()} for batch in few.batches(rows=1)]
    with tempfile.TemporaryDirectory() as folder:
        session = _session(model, tensors, Path(folder) / "observed.onnx")
        names = [item.name for item in session.get_inputs()]

        def values() -> Iterator[tuple[str, np.ndarray]]:
            for feed in feeds:
                yield from zip(tensors, session.run(list(tensors), {n: feed[n] for n in names}), strict=True)

        yield values


def _session(model: ir.Model, tensors: Sequence[str], path: Path) -> Any:
    """Returns a session on this CPU that hands out ``tensors`` beside the graph's own output."""
    import onnxruntime as ort

    proto = ir.serde.serialize_model(model)
    known = {item.name for item in proto.graph.output}
    for name in tensors:
        if name not in known:
            proto.graph.output.add().name = name
    onnx.save(proto, str(path), save_as_external_data=files.weight_bytes(model) > files.MAX_EMBEDDED_BYTES)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
