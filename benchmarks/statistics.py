"""What the single times say: percentiles with distribution-free intervals, per length and in total; dependence.

Percentiles are order statistics (the smallest time that at least the given share of runs does not exceed), so that a
percentile, its interval and the gate's binomial test speak of the same thing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from scipy import stats

from compressor.core.measurement import Measurement
from compressor.core.schema import Record

PERCENTILES = {"p50_ms": 0.50, "p90_ms": 0.90, "p95_ms": 0.95, "p99_ms": 0.99}
CONFIDENCE = 0.95
_MOST_LENGTHS = 8

Floats = NDArray[np.float64]


class Interval(Record):
    """A confidence interval; None where so few runs bound it on no side."""

    low: float | None
    high: float | None


class LengthSummary(Record):
    """The runs at one length."""

    runs: int
    p50_ms: float
    p95_ms: float
    tokenize_p50_ms: float | None
    total_p50_ms: float | None


class LatencySummary(Record):
    """What ``bench --json`` prints. Times are per sentence; ``p…_ms`` are inference alone."""

    schema_version: int = 1
    artifact: str
    device: str
    runtime: str
    threads: int
    cpus: str | None = None
    """Cores that the processes were pinned to; None: where the system put them."""
    runs: int
    processes: int
    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    intervals: dict[str, Interval]
    """At 95 % confidence, for each percentile of inference."""
    total_p50_ms: float | None
    total_p95_ms: float | None
    """Tokenisation and inference together; None where the device does not tokenise."""
    tokenize_p50_ms: float | None
    by_length: dict[int, LengthSummary]
    """Length the model ran at to its runs; where it takes any length, gathered up to the next power of two."""
    cold_ms: float
    """The slowest first inference of any process."""
    load_ms: float
    """The median time to load the model."""
    peak_memory_mb: float | None
    truncated_sentences: int
    lag1_autocorrelation: float
    invalid_reason: str | None
    notes: tuple[str, ...] = Field(default=())


def percentile(values: ArrayLike, share: float) -> float:
    """Returns the smallest of ``values`` that at least ``share`` of them do not exceed."""
    return float(np.quantile(np.asarray(values, dtype=float), share, method="inverted_cdf"))


def percentile_interval(values: ArrayLike, share: float, confidence: float = CONFIDENCE) -> Interval:
    """Returns a confidence interval of a percentile that holds for any distribution of independent runs.

    The number of runs below the true percentile is binomial, so two order statistics bound it (David and Nagaraja,
    *Order Statistics*, section 7.1). Each side errs with at most half of ``1 - confidence``.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    number, tail = len(ordered), (1 - confidence) / 2
    low = int(stats.binom.ppf(tail, number, share))
    high = int(stats.binom.ppf(1 - tail, number, share)) + 1
    return Interval(
        low=float(ordered[low - 1]) if low >= 1 else None,
        high=float(ordered[high - 1]) if high <= number else None,
    )


def autocorrelation(values: ArrayLike, process: ArrayLike, lag: int = 1, *, ranked: bool = False) -> float:
    """Returns the rank autocorrelation of runs at ``lag``, over pairs within one process.

    Ranks make it deaf to single outliers; the mean is taken over all processes, so that a process which is slow as a
    whole counts as dependence too. 0 where all values are equal or no pair exists. ``ranked``: the values are ranks
    already.
    """
    ranks = np.asarray(values, dtype=float) if ranked else stats.rankdata(np.asarray(values, dtype=float))
    centred = ranks - ranks.mean()
    which = np.asarray(process)
    variance = float(np.mean(centred**2))
    same = which[lag:] == which[:-lag]
    if variance == 0 or not same.any():
        return 0.0
    return float(np.mean((centred[lag:] * centred[:-lag])[same]) / variance)


def summary(measurement: Measurement) -> LatencySummary:
    """Returns the statistics of a measurement."""
    runs = measurement.runs
    inference = np.array(runs.inference_ms)
    tokenize = None if runs.tokenize_ms is None else np.array(runs.tokenize_ms)
    total = None if tokenize is None else inference + tokenize
    notes: Any = measurement.conditions_after.get("notes", ())
    return LatencySummary(
        artifact=measurement.subject,
        device=measurement.device,
        runtime=measurement.runtime,
        threads=measurement.threads,
        cpus=measurement.fingerprint.get("cpus"),
        runs=len(runs),
        processes=measurement.processes,
        p50_ms=percentile(inference, 0.50),
        p90_ms=percentile(inference, 0.90),
        p95_ms=percentile(inference, 0.95),
        p99_ms=percentile(inference, 0.99),
        intervals={name: percentile_interval(inference, share) for name, share in PERCENTILES.items()},
        total_p50_ms=_or_none(total, 0.5),
        total_p95_ms=_or_none(total, 0.95),
        tokenize_p50_ms=_or_none(tokenize, 0.5),
        by_length=_by_length(_groups(np.array(runs.length)), inference, tokenize),
        cold_ms=max(measurement.cold_ms),
        load_ms=percentile(measurement.load_ms, 0.5),
        peak_memory_mb=measurement.peak_memory_mb,
        truncated_sentences=measurement.truncated_sentences,
        lag1_autocorrelation=autocorrelation(inference, runs.process),
        invalid_reason=measurement.invalid_reason,
        notes=tuple(str(note) for note in notes),
    )


def _groups(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the group of every run: its length, or the next power of two (at least 8) where lengths are too many."""
    if len(np.unique(lengths)) <= _MOST_LENGTHS:
        return lengths
    powers: NDArray[np.int64] = np.maximum(8, 2 ** np.ceil(np.log2(lengths))).astype(np.int64)
    return powers


def _by_length(groups: NDArray[np.int64], inference: Floats, tokenize: Floats | None) -> dict[int, LengthSummary]:
    return {
        int(length): LengthSummary(
            runs=int(chosen.sum()),
            p50_ms=percentile(inference[chosen], 0.5),
            p95_ms=percentile(inference[chosen], 0.95),
            tokenize_p50_ms=None if tokenize is None else percentile(tokenize[chosen], 0.5),
            total_p50_ms=None if tokenize is None else percentile((inference + tokenize)[chosen], 0.5),
        )
        for length in np.unique(groups)
        for chosen in (groups == length,)
    }


def _or_none(values: Floats | None, share: float) -> float | None:
    return None if values is None else percentile(values, share)
