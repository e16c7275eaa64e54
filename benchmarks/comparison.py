"""How much slower than a baseline? The ratio of a percentile, with a bootstrap interval.

Runs of one process are alike, so whole processes are drawn with replacement, never single runs (Davison and Hinkley,
*Bootstrap Methods and their Application*, section 3.8). With few processes the spread of what was drawn is too small:
the interval takes it times the square root of ``n / (n - 1)`` and Student's quantile with ``n - 1`` degrees of freedom.
Where both subjects were interleaved in one run, process i of one is drawn together with process i of the other: what
slowed both cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.looks import ALPHA
from benchmarks.resampling import RESAMPLES, resampled_percentiles
from benchmarks.statistics import Floats, percentile
from compressor.core.errors import UsageError
from compressor.core.measurement import Measurement

FEWEST_PROCESSES = 3
_SENTENCES_TOLERANCE = 0.02


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A percentile over the baseline's; the bounds are one-sided, each at its own confidence."""

    ratio: float
    low: float
    """The true ratio is above this but for ``alpha_over``."""
    high: float
    """The true ratio is below this but for ``alpha``."""
    processes: int


def ratio(
    measured: Measurement,
    baseline: Measurement,
    share: float,
    *,
    paired: bool,
    alpha: float = ALPHA,
    alpha_over: float | None = None,
    seed: int = 0,
) -> Ratio | None:
    """Returns the ratio of two percentiles of inference with its bounds; None with fewer than three processes of each.

    Args:
        measured: what is judged.
        baseline: what it is compared with.
        share: 0.95 for p95.
        paired: both were interleaved in one run.
        alpha: the error of the upper bound.
        alpha_over: the error of the lower bound; None: the same.
        seed: of the bootstrap.
    """
    ours, theirs = _by_process(measured), _by_process(baseline)
    counts = (len(ours), len(theirs))
    if min(counts) < FEWEST_PROCESSES:
        return None
    random = np.random.default_rng(seed)
    drawn = random.integers(counts[0], size=(RESAMPLES, counts[0]))
    paired = paired and counts[0] == counts[1]
    other = drawn if paired else random.integers(counts[1], size=(RESAMPLES, counts[1]))
    logarithms = np.log(resampled_percentiles(ours, drawn, share)) - np.log(resampled_percentiles(theirs, other, share))
    fewest = min(counts)
    spread = float(logarithms.std(ddof=1)) * math.sqrt(fewest / (fewest - 1))
    found = math.log(percentile(np.concatenate(ours), share) / percentile(np.concatenate(theirs), share))
    up, down = (stats.t.ppf(1 - error, fewest - 1) for error in (alpha, alpha if alpha_over is None else alpha_over))
    return Ratio(
        ratio=math.exp(found),
        low=math.exp(found - down * spread),
        high=math.exp(found + up * spread),
        processes=fewest,
    )


def check_comparable(measured: Measurement, stored: Measurement) -> None:
    """Refuses a stored baseline that was measured elsewhere, with other software, settings or sentences.

    Raises:
        UsageError: what differs, both values, and what to do.
    """
    pairs: dict[str, tuple[object, object]] = {
        "device": (measured.device, stored.device),
        "runtime": (measured.runtime, stored.runtime),
        "threads": (measured.threads, stored.threads),
    }
    for key in sorted(measured.fingerprint.keys() | stored.fingerprint.keys()):
        pairs[key] = (measured.fingerprint.get(key), stored.fingerprint.get(key))
    different = [f"{name} {theirs!r} instead of {ours!r}" for name, (ours, theirs) in pairs.items() if ours != theirs]
    mean_tokens = [float(np.mean(item.runs.tokens)) for item in (measured, stored)]
    if not different and abs(math.log(mean_tokens[1] / mean_tokens[0])) > _SENTENCES_TOLERANCE:
        different = [f"sentences of {mean_tokens[1]:.1f} tokens on average instead of {mean_tokens[0]:.1f}"]
    if stored.invalid_reason is not None:
        different = [f"an invalid measurement ({stored.invalid_reason})"]
    if different:
        raise UsageError(
            f"the stored baseline of {stored.subject} has {'; '.join(different)}; expected the same device, versions "
            "and sentences",
            remedy="pass the baseline's artifact folder, so that both are measured interleaved, or measure it again",
        )


def _by_process(measurement: Measurement) -> list[Floats]:
    times, which = np.array(measurement.runs.inference_ms), np.array(measurement.runs.process)
    return [times[which == number] for number in np.unique(which)]
