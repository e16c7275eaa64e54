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
pass at all, a process and not a run is the independent unit. It passes when an upper bound of the percentile does: a
bootstrap over processes, raised by what normal process effects of the spread found would add. It is over budget when
the mean share of a process's runs that exceed the budget is above ``1 - p`` by Student's test over processes. Both are
approximate; their error rates are simulated in ``benchmarks/studies/gate_errors.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from benchmarks.looks import ALPHA, runs_needed
from benchmarks.resampling import resampled_percentiles
from benchmarks.statistics import Floats, autocorrelation, percentile
from compressor.core.verdict import Outcome

MAX_TAIL_CORRELATION = 0.15
MAX_LEFT_OVER = 0.1
_LEFT_OVER_LAGS = 5
_FADED = 0.2
_MOST_THINNING = 50
_FEWEST_PROCESSES = 3
_RESAMPLES = 200


@dataclass(frozen=True)
class Judged:
    """The outcome of one percentile test."""

    outcome: Outcome
    runs: int
    """Runs that were judged, after thinning."""
    over: int
    """Those of them above the budget."""
    detail: str


def judge_percentile(
    times_ms: Sequence[float] | Floats,
    process: Sequence[int] | NDArray[np.int64],
    budget_ms: float,
    share: float,
    *,
    alpha: float = ALPHA,
    alpha_over: float | None = None,
    margin: float = 0.0,
) -> Judged:
    """Judges whether the ``share`` percentile of the times lies within a budget, by the rules in this module's text.

    Args:
        times_ms: single times in the order they were measured.
        process: which process each belongs to.
        budget_ms: the limit.
        share: 0.95 for p95.
        alpha: the largest probability of a wrong pass.
        alpha_over: the largest probability of a wrong "over budget"; None: the same.
        margin: decide only what still holds with the budget moved against the decision by this fraction.
    """
    times, which = np.asarray(times_ms, dtype=float), np.asarray(process)
    test = _Test(budget_ms, share, alpha, alpha if alpha_over is None else alpha_over, margin)
    ranks = stats.rankdata(times)
    dependence = autocorrelation(ranks, which, ranked=True)
    step = _thinning_step(dependence, share)
    faded = _fading_lag(dependence)
    left_over = float(
        np.mean([autocorrelation(ranks, which, faded + lag, ranked=True) for lag in range(_LEFT_OVER_LAGS)])
    )
    kept = times[::step]
    if left_over > MAX_LEFT_OVER or (step > 1 and len(kept) < runs_needed(share, alpha)):
        return test.of_processes(times, which, max(dependence, left_over))
    return test.of_runs(kept, step, dependence)


@dataclass(frozen=True)
class _Test:
    budget: float
    share: float
    alpha: float
    alpha_over: float
    margin: float

    @property
    def name(self) -> str:
        return f"p{self.share * 100:g}"

    def of_runs(self, kept: Floats, step: int, dependence: float) -> Judged:
        """The exact binomial test on independent runs."""
        runs, over = len(kept), int((kept > self.budget).sum())
        low = int((kept > self.budget / (1 + self.margin)).sum())
        high = int((kept > self.budget * (1 + self.margin)).sum())
        notes = [f"{over} of {runs} runs over"]
        if step > 1:
            notes.append(f"1 of {step} runs judged: lag-1 autocorrelation {dependence:.2f}")
        outcome: Outcome = "inconclusive"
        if runs and special.bdtr(low, runs, 1 - self.share) <= self.alpha:
            outcome = "pass"
        elif high and special.bdtrc(high - 1, runs, 1 - self.share) <= self.alpha_over:
            outcome = "over_budget"
        else:
            needed = runs_needed(self.share, self.alpha)
            notes.append(
                f"{self.name} needs at least {needed} independent runs" if runs < needed else "more runs may decide it"
            )
        return Judged(outcome, runs, over, "; ".join(notes))

    def of_processes(self, times: Floats, which: np.ndarray, dependence: float) -> Judged:
        """Judges with processes as the units: a pass by a bound on the percentile, an excess by the shares over it."""
        parts = [times[which == number] for number in np.unique(which)]
        count, over = len(parts), int((times > self.budget).sum())
        notes = [f"{over} of {len(times)} runs over", f"the runs depend on each other (correlation {dependence:.2f})"]
        if count < _FEWEST_PROCESSES:
            notes.append(f"at least {_FEWEST_PROCESSES} processes are needed to judge that")
            return Judged("inconclusive", len(times), over, "; ".join(notes))
        high = _upper_bound(parts, self.share, self.alpha)
        least = _least_exceedance(parts, self.budget * (1 + self.margin), self.alpha_over)
        outcome: Outcome = "inconclusive"
        if high <= math.log(self.budget / (1 + self.margin)):
            outcome = "pass"
        elif least > 1 - self.share:
            outcome = "over_budget"
        excess = f" and at least {least:.1%} of all runs over the budget" if least > 0 else ""
        notes.append(f"{count} processes put {self.name} below {math.exp(high):.3g} ms{excess}")
        if outcome == "inconclusive":
            notes.append("a quieter machine or more processes may decide it")
        return Judged(outcome, len(times), over, "; ".join(notes))


def _least_exceedance(parts: Sequence[Floats], budget: float, alpha: float) -> float:
    """Returns a lower bound of the share of runs over the budget, over all processes there could be.

    Processes are the independent observations, their shares the values. The shares' spread is taken no smaller than
    independent runs would give, since a few processes can agree by chance. Shares of a rare event are skewed to the
    right, for which this side of Student's test errs less often than stated.
    """
    shares = np.array([(part > budget).mean() for part in parts])
    mean, runs = float(shares.mean()), sum(map(len, parts)) / len(parts)
    spread = max(float(shares.std(ddof=1)), math.sqrt(mean * (1 - mean) / runs))
    return mean - float(special.stdtrit(len(parts) - 1, 1 - alpha)) * spread / math.sqrt(len(parts))


def _upper_bound(parts: Sequence[Floats], share: float, alpha: float) -> float:
    """Returns an upper bound of the logarithm of the percentile over all processes there could be.

    The pooled percentile misses processes slower than any that ran. So it is raised to what normal process effects of
    the spread found would give: were ``b`` that spread and ``w`` the spread within a process, the percentile of all
    lies ``z (sqrt(w^2 + b^2) - w)`` above that of a typical process. Both spreads and the bootstrap over processes go
    into the standard error, taken times Student's quantile.
    """
    count = len(parts)
    logarithms = [np.sort(np.log(part)) for part in parts]
    pool = np.concatenate(logarithms)
    sizes = np.array([len(part) for part in parts])
    first = np.cumsum(sizes) - sizes
    percentiles = pool[first + np.maximum(np.ceil(share * sizes - 1e-9).astype(int) - 1, 0)]
    medians = pool[first + (sizes - 1) // 2]
    within = float(np.sqrt(np.mean(np.square(pool - np.repeat(np.add.reduceat(pool, first) / sizes, sizes)))))
    unbiased = 1 + 1 / (4 * (count - 1))  # of a normal sample's standard deviation, to first order
    between = unbiased * float(medians.std(ddof=1))
    total = math.hypot(within, between)
    quantile = max(float(stats.norm.ppf(share)), 0.0)
    raised = quantile * (total - within)
    slope = quantile * between / total if total else 0.0
    drawn = np.random.default_rng(0).integers(count, size=(_RESAMPLES, count))
    resampled = resampled_percentiles(logarithms, drawn, share)
    mean_error = max(
        float(resampled.std(ddof=1)) * math.sqrt(count / (count - 1)), percentiles.std(ddof=1) / math.sqrt(count)
    )
    spread_error = slope * between / math.sqrt(2 * (count - 1))
    pooled, typical = percentile(pool, share), float(percentiles.mean())
    up = float(special.stdtrit(count - 1, 1 - alpha))
    return max(pooled, typical + raised) + up * math.hypot(mean_error, spread_error)


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


@lru_cache(maxsize=64)
def _largest_correlation(share: float) -> float:
    """Returns the rank correlation at which exceedances are correlated by ``MAX_TAIL_CORRELATION`` (by bisection)."""
    low, high = 0.0, 0.99
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if tail_correlation(middle, share) > MAX_TAIL_CORRELATION else (middle, high)
    return low


def _thinning_step(dependence: float, share: float) -> int:
    """Returns the distance at which exceedances of an AR(1) process of this correlation are independent enough."""
    bound = _largest_correlation(share)
    if dependence <= bound:
        return 1
    return min(_MOST_THINNING, math.ceil(math.log(bound) / math.log(min(dependence, 0.99))))


def _fading_lag(dependence: float) -> int:
    """Returns the lag at which an AR(1) process of this lag-1 rank correlation has fallen to ``_FADED``."""
    if dependence <= _FADED:
        return 1
    return max(2, math.ceil(math.log(_FADED) / math.log(min(dependence, 0.99))))
