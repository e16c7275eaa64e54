"""When a gate looks at its runs, and how much of its error each look may spend.

Looking at the same runs again and again until one look decides would multiply the error. So the looks are fixed before
the first run, and the error is split over them (Bonferroni's inequality: valid however the looks depend on each other,
and whichever runs dependence leaves of each). Early looks also keep a margin: a machine whose speed drifts by up to
``MAX_DRIFT`` over the whole gate would otherwise be judged by its fast or slow beginning alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from compressor.core.errors import UsageError

ALPHA = 0.05
MAX_RUNS = 500
MAX_DRIFT = 0.10
FIRST_PROCESSES = 6
NEXT_PROCESSES = 4
"""Fresh processes of each subject at the first look, and at each later one. Where processes fall into two kinds (one
core of two is busy), few of them may all be of one kind."""
_SINGLE_LOOK_PROCESSES = 8
_BUCKET_SLACK = 1.1
"""Sentences are drawn by their characters, so a bucket's share of the runs is only nearly that of the sentences."""
_SPENT = ((0.2, 0.25), (0.4, 0.15), (0.7, 0.2))
"""Share of the runs, and share of the error, of the looks before the last one; the last has what is left."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at all runs made so far."""

    runs: int
    """Timed runs of each subject up to this look."""
    processes: int
    """Fresh processes of each subject up to this look."""
    share_of_error: float
    margin: float
    """An early verdict must hold with the budget moved against it by this fraction."""


SINGLE = Look(runs=0, processes=0, share_of_error=1.0, margin=0.0)
"""How a measurement that is already there is judged: once, with the whole error."""


def runs_needed(share: float, alpha: float = ALPHA) -> int:
    """Returns the fewest runs that can pass a budget on a percentile, none exceeding it: 59 for p95, 299 for p99."""
    return math.ceil(math.log(alpha) / math.log(share))


@dataclass(frozen=True, kw_only=True)
class Need:
    """One percentile to be judged."""

    share: float
    """0.95 for p95."""
    part: float = 1.0
    """Share of the runs it is judged on: below 1 for one length bucket of a mix."""

    def runs(self, alpha: float = ALPHA) -> int:
        """Returns the fewest timed runs, over all lengths, with which it can pass."""
        slack = 1.0 if self.part == 1.0 else _BUCKET_SLACK
        return math.ceil(runs_needed(self.share, alpha) * slack / self.part)

    @property
    def name(self) -> str:
        """For people: ``p95``, or ``p95 of a length that is 8 % of the sentences``."""
        where = "" if self.part == 1.0 else f" of a length that is {self.part:.0%} of the sentences"
        return f"p{self.share * 100:g}{where}"


def plan_looks(
    needs: Collection[Need], *, max_runs: int | None = None, first: int = 1, alpha: float = ALPHA
) -> tuple[Look, ...]:
    """Returns the looks of a gate, the last at ``max_runs``.

    A look at which the most demanding percentile could not pass yet is left out, and its error goes to the last one.

    Args:
        needs: the percentiles to be judged; empty where only sizes, ratios and the like are.
        max_runs: the most timed runs of each subject; None: 500, or twice what the most demanding percentile needs.
        first: the fewest runs at the first look.
        alpha: the probability of an error, each way, over all looks.

    Raises:
        UsageError: with so few runs a percentile can never pass; the message says how many it needs.
    """
    strictest = max(needs, key=lambda need: need.runs(alpha), default=None)
    needed = 1 if strictest is None else strictest.runs(alpha)
    last = max(MAX_RUNS, 2 * needed, first) if max_runs is None else max_runs
    if strictest is not None and last < needed:
        raise UsageError(
            f"{strictest.name} cannot pass with {last} runs; expected at least {needed}, even if none exceeds the "
            f"budget (error {alpha:.0%} each way)",
            remedy=f"pass --max-runs {needed} or more, or budget a lower percentile",
        )
    looks: list[Look] = []
    for part, spent in _SPENT:
        runs = round(part * last)
        if runs >= max(first, FIRST_PROCESSES, *(need.runs(alpha * spent) for need in needs)):
            processes = FIRST_PROCESSES + NEXT_PROCESSES * len(looks)
            margin = MAX_DRIFT * (1 - part)
            looks.append(Look(runs=runs, processes=processes, share_of_error=spent, margin=margin))
    left = 1 - sum(look.share_of_error for look in looks)
    processes = FIRST_PROCESSES + NEXT_PROCESSES * len(looks) if looks else _SINGLE_LOOK_PROCESSES
    looks.append(Look(runs=last, processes=min(processes, last), share_of_error=left, margin=0.0))
    return tuple(looks)


def describe(looks: Collection[Look], needs: Collection[Need], alpha: float = ALPHA) -> str:
    """Returns the plan in words: the runs needed at least, when the runs are looked at, and the error."""
    counts = [str(look.runs) for look in looks]
    when = f"looks after {', '.join(counts)} runs at most" if len(counts) > 1 else f"one look after {counts[0]} runs"
    each = {need.name: min(need.runs(alpha * look.share_of_error) for look in looks) for need in needs}
    least = [f"{name}: {runs}" for name, runs in sorted(each.items(), key=lambda item: item[1])]
    needed = f"runs needed to pass: {'; '.join(least)}; " if least else ""
    return f"{needed}{when}; error at most {alpha:.0%} each way, over all looks and limits together"
