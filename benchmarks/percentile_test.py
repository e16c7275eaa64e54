"""Does a percentile of the times lie within a budget? An exact test, and what stands in for it where runs depend.

The sample percentile is not compared with the budget: with the budget exactly met that is a coin toss. Instead, with
``k`` of ``n`` runs over a budget on the ``p``-th percentile, and ``X`` binomial with ``n`` and ``1 - p``,

- **pass** when ``P(X <= k) <= alpha``: were the true percentile above the budget, so few would be rare;
- **over budget** when ``P(X >= k) <= alpha``: were it within, so many would be rare;
- **inconclusive** otherwise.

Each error has at most the probability ``alpha``, whatever the distribution of the times, as long as runs are
independent. That is checked on ranks: where exceedances of neighbouring runs would be correlated by more than
``MAX_TAIL_CORRELATION``, the runs are thinned to a distance at which an autoregressive process of that strength has
lost it. Where runs are still alike (``MAX_LEFT_OVER``, on ranks) where such a process would have faded, the dependence
stays: whole processes differ, as on a machine that others use. There, and where thinning leaves fewer runs than can
pass at all, a process and not a run is the independent unit, and only what is clear by a margin is decided: the
percentiles of the processes must lie on one side of the budget together with a normal tolerance bound on their
logarithms (content ``p``, confidence ``1 - alpha``; Hahn and Meeker, *Statistical Intervals*, section 4.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.statistics import Floats, autocorrelation, percentile
from compressor.core.verdict import Outcome

ALPHA = 0.05
MAX_TAIL_CORRELATION = 0.15
MAX_LEFT_OVER = 0.1
_LEFT_OVER_LAGS = 5
_FADED = 0.2
_MOST_THINNING = 50
_FEWEST_PROCESSES = 3


@dataclass(frozen=True)
class Judged:
    """The outcome of one percentile test."""

    outcome: Outcome
    runs: int
    """Runs that were judged, after thinning."""
    over: int
    """Those of them above the budget."""
    detail: str


def runs_needed(share: float, alpha: float = ALPHA) -> int:
    """Returns the fewest runs that can pass a budget on a percentile, none exceeding it: 59 for p95, 299 for p99."""
    return math.ceil(math.log(alpha) / math.log(share))


def judge_percentile(
    times_ms: Sequence[float] | Floats,
    process: Sequence[int],
    budget_ms: float,
    share: float,
    *,
    alpha: float = ALPHA,
) -> Judged:
    """Judges whether the ``share`` percentile of the times lies within a budget, by the rules in this module's text.

    Args:
        times_ms: single times in the order they were measured.
        process: which process each belongs to.
        budget_ms: the limit.
        share: 0.95 for p95.
        alpha: the largest probability of either error.
    """
    times, which = np.asarray(times_ms, dtype=float), np.asarray(process)
    dependence = autocorrelation(times, which)
    step = _thinning_step(dependence, share)
    faded = _fading_lag(dependence)
    left_over = float(np.mean([autocorrelation(times, which, faded + lag) for lag in range(_LEFT_OVER_LAGS)]))
    kept = times[::step]
    too_few = step > 1 and len(kept) < runs_needed(share, alpha)
    if left_over > MAX_LEFT_OVER or too_few:
        return _judge_by_process(times, which, budget_ms, share, alpha=alpha, dependence=max(dependence, left_over))
    over, runs = int((kept > budget_ms).sum()), len(kept)
    notes = [f"{over} of {runs} runs over; error at most {alpha:.0%} each way"]
    if step > 1:
        notes.append(f"1 of {step} runs judged: lag-1 autocorrelation {dependence:.2f}")
    outcome: Outcome
    if stats.binom.cdf(over, runs, 1 - share) <= alpha:
        outcome = "pass"
    elif stats.binom.sf(over - 1, runs, 1 - share) <= alpha:
        outcome = "over_budget"
    else:
        outcome = "inconclusive"
        needed = runs_needed(share, alpha)
        notes.append(
            f"p{share * 100:g} needs at least {needed} independent runs" if runs < needed else "more runs may decide it"
        )
    return Judged(outcome, runs, over, "; ".join(notes))


def _judge_by_process(
    times: Floats, which: np.ndarray, budget_ms: float, share: float, *, alpha: float, dependence: float
) -> Judged:
    """Judges processes as units, by a one-sided normal tolerance bound on the logarithms of their percentiles."""
    logarithms = np.log([percentile(times[which == number], share) for number in np.unique(which)])
    count, over = len(logarithms), int((times > budget_ms).sum())
    notes = [f"{over} of {len(times)} runs over", f"the runs depend on each other (correlation {dependence:.2f})"]
    if count < _FEWEST_PROCESSES:
        notes.append(f"at least {_FEWEST_PROCESSES} processes are needed to judge that")
        return Judged("inconclusive", len(times), over, "; ".join(notes))
    noncentrality = stats.norm.ppf(share) * math.sqrt(count)
    factor = float(stats.nct.ppf(1 - alpha, count - 1, noncentrality)) / math.sqrt(count)
    centre, margin = float(logarithms.mean()), factor * float(logarithms.std(ddof=1))
    outcome: Outcome = "inconclusive"
    if centre + margin <= math.log(budget_ms):
        outcome = "pass"
    elif centre - margin > math.log(budget_ms):
        outcome = "over_budget"
    notes.append(
        f"{count} processes put p{share * 100:g} between {math.exp(centre - margin):.3g} and "
        f"{math.exp(centre + margin):.3g} ms"
    )
    if outcome == "inconclusive":
        notes.append("a quieter machine or more processes may decide it")
    return Judged(outcome, len(times), over, "; ".join(notes))


def tail_correlation(rank_correlation: float, share: float) -> float:
    """Returns how strongly "this run exceeds the percentile" is correlated between two runs.

    The test counts exceedances, so it is their dependence that matters. For a Gaussian copula it is much weaker than
    the correlation of the values: 0.10 at p95 where ranks are correlated by 0.3 (Joe, *Dependence Modeling with
    Copulas*, section 2.12, gives the joint tail probability).
    """
    if rank_correlation <= 0:
        return 0.0
    latent = 2 * math.sin(math.pi * min(rank_correlation, 0.99) / 6)
    quantile = float(stats.norm.ppf(1 - share))
    joint = float(stats.multivariate_normal.cdf([quantile, quantile], mean=[0, 0], cov=[[1, latent], [latent, 1]]))
    return (joint - (1 - share) ** 2) / (share * (1 - share))


def _thinning_step(dependence: float, share: float) -> int:
    """Returns the distance at which exceedances of an AR(1) process of this correlation are independent enough."""
    step = 1
    while step < _MOST_THINNING and tail_correlation(max(dependence, 0.0) ** step, share) > MAX_TAIL_CORRELATION:
        step += 1
    return step


def _fading_lag(dependence: float) -> int:
    """Returns the lag at which an AR(1) process of this lag-1 rank correlation has fallen to ``_FADED``."""
    if dependence <= _FADED:
        return 1
    return max(2, math.ceil(math.log(_FADED) / math.log(min(dependence, 0.99))))
