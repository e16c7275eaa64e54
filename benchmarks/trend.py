"""Did a time change, and when? A change point in a series of past measurements.

The place of the largest standardised difference of the two means (a CUSUM of ranks, so that one outlier counts once)
is tested against random orders of the same values; what lies on either side is searched in turn, as binary
segmentation does (Scott and Knott, *Biometrics* 30, 1974).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np
from scipy import stats

from benchmarks.history import Entry
from benchmarks.statistics import Floats
from compressor.core import wording
from compressor.core.schema import Record

ALPHA = 0.01
FEWEST_EACH_SIDE = 3
SMALLEST_CHANGE = 0.03
"""A change of the median below this fraction is not told: nobody would act on it."""
_PERMUTATIONS = 999


class Change(Record):
    """Where a series changed its level."""

    index: int
    """The first entry of the new level."""
    recorded: str
    commit_id: str
    before_ms: float
    after_ms: float
    """Medians of the series' p95 on both sides."""

    @property
    def text(self) -> str:
        """For people: when, at which revision, from what to what."""
        at = f" at {self.commit_id[:10]}" if self.commit_id else ""
        change = self.after_ms / self.before_ms - 1
        return f"{self.recorded[:10]}{at}: p95 {self.before_ms:.3g} to {self.after_ms:.3g} ms ({change:+.0%})"


class Series(Record):
    """One artifact on one machine with one runtime, over time."""

    subject: str
    device: str
    runtime: str
    threads: int
    entries: tuple[Entry, ...]
    changes: tuple[Change, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.subject} on {self.device}"

    @property
    def setting(self) -> str:
        """What else sets it apart, for people: runtime, threads and processor."""
        processor = self.entries[0].fingerprint.get("cpu") if self.entries else None
        return ", ".join(filter(None, (self.runtime, wording.threads(self.threads), processor)))


def series_of(entries: Sequence[Entry]) -> tuple[Series, ...]:
    """Sorts valid entries into series: times of different machines, runtimes or thread counts are never joined."""

    def key(entry: Entry) -> tuple[str, str, str, int, str]:
        machine = str(sorted(entry.fingerprint.items()))
        return entry.subject, entry.device, entry.runtime, entry.threads, machine

    valid = [entry for entry in entries if entry.invalid_reason is None]
    found = []
    for (subject, device, runtime, threads, _), group in groupby(sorted(valid, key=key), key=key):
        members = tuple(group)
        found.append(
            Series(
                subject=subject, device=device, runtime=runtime, threads=threads, entries=members,
                changes=change_points(members),
            )
        )  # fmt: skip
    return tuple(found)


def change_points(entries: Sequence[Entry]) -> tuple[Change, ...]:
    """Returns where the p95 of a series changed, in order of time."""
    values = np.log([entry.p95_ms for entry in entries])
    places = sorted(_search(values, 0, len(values)))
    bounds = [0, *places, len(values)]
    changes = []
    for position, place in enumerate(places, 1):
        before, after = (
            math.exp(float(np.median(values[bounds[side] : bounds[side + 1]]))) for side in (position - 1, position)
        )
        if abs(after / before - 1) >= SMALLEST_CHANGE:
            entry = entries[place]
            changes.append(
                Change(
                    index=place, recorded=entry.recorded, commit_id=entry.commit_id, before_ms=before, after_ms=after
                )
            )
    return tuple(changes)


def _search(values: Floats, start: int, end: int) -> list[int]:
    part = values[start:end]
    if len(part) < 2 * FEWEST_EACH_SIDE:
        return []
    ranks = stats.rankdata(part)
    random = np.random.default_rng(0)
    orders = random.permuted(np.tile(ranks, (_PERMUTATIONS, 1)), axis=1)
    strengths, places = _strongest(np.vstack([ranks, orders]))
    if (1 + int((strengths[1:] >= strengths[0]).sum())) / (_PERMUTATIONS + 1) > ALPHA:
        return []
    place = start + int(places[0])
    return [*_search(values, start, place), place, *_search(values, place, end)]


def _strongest(rows: Floats) -> tuple[Floats, np.ndarray]:
    """Returns, for each row, the largest standardised difference of means and the place where it is."""
    count = rows.shape[1]
    left = np.arange(FEWEST_EACH_SIDE, count - FEWEST_EACH_SIDE + 1)
    sums = np.cumsum(rows - rows.mean(axis=1, keepdims=True), axis=1)[:, left - 1]
    scaled = np.abs(sums) / np.sqrt(left * (count - left) / count)
    best = scaled.argmax(axis=1)
    return scaled[np.arange(len(rows)), best], left[best]
