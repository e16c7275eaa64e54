"""The bootstrap over whole processes: what other processes of the same machine would have given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.statistics import Floats

RESAMPLES = 1000


def resampled_percentiles(processes: Sequence[Floats], drawn: NDArray[np.int64], share: float) -> Floats:
    """Returns the percentile of each draw of processes: a weighted order statistic of all runs.

    Args:
        processes: the times of each process.
        drawn: indices of processes, shape (draws, processes of a draw).
        share: 0.95 for p95.
    """
    times = np.concatenate(processes)
    owner = np.repeat(np.arange(len(processes)), [len(part) for part in processes])
    order = np.argsort(times, kind="stable")
    weights = (drawn[:, :, None] == np.arange(len(processes))).sum(axis=1)
    cumulated = np.cumsum(weights[:, owner[order]], axis=1)
    place = (cumulated < np.ceil(share * cumulated[:, -1:])).sum(axis=1)
    found: Floats = times[order][np.minimum(place, len(times) - 1)]
    return found
