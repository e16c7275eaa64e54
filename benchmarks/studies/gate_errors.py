"""How often is the gate wrong, and how often does it decide? Simulated gates whose true percentile is known.

    python -m benchmarks.studies.gate_errors [--gates 2000] [--document docs/gate.md]

Each gate takes looks as ``compressor gate`` does, at the times of one simulated machine. The rates at the budget are
errors: a pass or an "over budget" there must each be as rare as stated. Off the budget, the right verdict is the power.
``--document`` replaces the table between the two marks in that file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.looks import ALPHA, Look, Need, plan_looks
from benchmarks.percentile_test import judge_percentile
from benchmarks.statistics import Floats
from compressor.core.verdict import Outcome

SHARE = 0.95
MARKS = ("<!-- gate_errors -->", "<!-- /gate_errors -->")
FACTORS = (1.0, 1.1, 1 / 1.1, 1.3, 0.75)
"""Budgets, as multiples of the true percentile."""

Make = Callable[[np.random.Generator, int, NDArray[np.int64]], Floats]
"""(random, gates, process of each run) to the times in milliseconds, shape (gates, runs)."""


def lognormal(sigma: float) -> Make:
    """Independent runs ``exp(sigma Z)``."""
    return lambda random, gates, process: np.exp(sigma * random.normal(size=(gates, len(process))))


def bimodal(share: float, slow: float) -> Make:
    """A share of the runs takes ``slow`` times as long, as with a neighbour that wakes now and then."""
    return lambda random, gates, process: (
        np.exp(0.05 * random.normal(size=(gates, len(process))))
        * np.where(random.random((gates, len(process))) < share, slow, 1.0)
    )


def pareto(random: np.random.Generator, gates: int, process: NDArray[np.int64]) -> Floats:
    """A heavy tail without a variance: Lomax with exponent 1.5."""
    times: Floats = 1 + 0.1 * random.pareto(1.5, size=(gates, len(process)))
    return times


def ramp(total: float) -> Make:
    """A machine that speeds up or slows down steadily, by ``total`` from first run to last."""

    def make(random: np.random.Generator, gates: int, process: NDArray[np.int64]) -> Floats:
        sign = random.choice([-1.0, 1.0], size=(gates, 1))
        drift = sign * np.linspace(-total / 2, total / 2, len(process))
        times: Floats = np.exp(0.1 * random.normal(size=(gates, len(process))) + drift)
        return times

    return make


def waves(size: float, count: float) -> Make:
    """A machine whose speed comes and goes, ``count`` times over a gate, from a random beginning."""

    def make(random: np.random.Generator, gates: int, process: NDArray[np.int64]) -> Floats:
        runs = len(process)
        phase = 2 * np.pi * (random.random((gates, 1)) + count * np.arange(runs) / runs)
        times: Floats = np.exp(0.1 * random.normal(size=(gates, runs)) + size * np.sin(phase))
        return times

    return make


def autoregressive(rho: float) -> Make:
    """Runs within a process depend on the run before; processes are independent."""

    def make(random: np.random.Generator, gates: int, process: NDArray[np.int64]) -> Floats:
        values = random.normal(size=(gates, len(process)))
        for run in range(1, len(process)):
            if process[run] == process[run - 1]:
                values[:, run] = rho * values[:, run - 1] + np.sqrt(1 - rho**2) * values[:, run]
        times: Floats = np.exp(0.2 * values)
        return times

    return make


def processes(between: float, within: float) -> Make:
    """Whole processes differ, as they do where memory lies differently or a neighbour shares the core."""

    def make(random: np.random.Generator, gates: int, process: NDArray[np.int64]) -> Floats:
        offsets = between * random.normal(size=(gates, int(process.max()) + 1))
        times: Floats = np.exp(within * random.normal(size=(gates, len(process))) + offsets[:, process])
        return times

    return make


CASES: dict[str, Make] = {
    "lognormal, sigma 0.05": lognormal(0.05),
    "lognormal, sigma 0.1": lognormal(0.1),
    "lognormal, sigma 0.2": lognormal(0.2),
    "bimodal, 6 % of runs twice as long": bimodal(0.06, 2.0),
    "heavy tail, Pareto 1.5": pareto,
    "drift of 10 % over the gate, sigma 0.1": ramp(0.10),
    "speed in waves of ±10 %, sigma 0.1": waves(0.10, 1.5),
    "autocorrelation 0.5, sigma 0.2": autoregressive(0.5),
    "autocorrelation 0.8, sigma 0.2": autoregressive(0.8),
    "processes differ by 5 %, sigma 0.1": processes(0.05, 0.1),
    "processes differ by 20 %, sigma 0.2": processes(0.2, 0.2),
}
INDEPENDENT = tuple(CASES)[:3]


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Shares of the simulated gates, and the runs they took on average."""

    passed: float
    over: float
    runs: float


def process_of(looks: Sequence[Look]) -> NDArray[np.int64]:
    """Returns the process of each run, as a gate with these looks starts them."""
    parts, runs, started = [], 0, 0
    for look in looks:
        count, fresh = look.runs - runs, look.processes - started
        parts.append(started + np.arange(count) * fresh // count)
        runs, started = look.runs, look.processes
    return np.concatenate(parts)


def decide(
    times: Floats, process: NDArray[np.int64], looks: Sequence[Look], budget: float, *, tests: int = 1
) -> tuple[Outcome, int]:
    """Returns one gate's outcome on one percentile, and the runs it took."""
    outcome: Outcome = "inconclusive"
    for look in looks:
        error = ALPHA * look.share_of_error
        outcome = judge_percentile(
            times[: look.runs], process[: look.runs], budget, SHARE, alpha=error, alpha_over=error / tests,
            margin=look.margin,
        ).outcome  # fmt: skip
        if outcome != "inconclusive":
            return outcome, look.runs
    return outcome, looks[-1].runs


def true_percentile(make: Make, process: NDArray[np.int64], *, gates: int = 4000) -> float:
    """Returns the percentile over many simulated machines."""
    return float(np.quantile(make(np.random.default_rng(99), gates, process), SHARE))


def simulate(make: Make, *, gates: int, factor: float, seed: int = 0, looks: Sequence[Look] | None = None) -> Rates:
    """Simulates gates with a budget of ``factor`` times the true p95."""
    looks = plan_looks([Need(share=SHARE)]) if looks is None else looks
    process = process_of(looks)
    budget = factor * true_percentile(make, process)
    found = [decide(row, process, looks, budget) for row in make(np.random.default_rng(seed), gates, process)]
    return Rates(
        passed=sum(outcome == "pass" for outcome, _ in found) / gates,
        over=sum(outcome == "over_budget" for outcome, _ in found) / gates,
        runs=sum(runs for _, runs in found) / gates,
    )


def table(gates: int) -> str:
    """Returns the markdown table of all cases."""
    rows = [_row(name, gates) for name in CASES]
    columns = (
        "times",
        "pass at the budget (error)",
        "over at the budget (error)",
        "pass, budget 10 % above",
        "over, budget 9 % below",
        "pass, 30 % above",
        "over, 25 % below",
        "mean runs, in this order of budgets",
    )
    head = [f"| {' | '.join(columns)} |", "|---|---:|---:|---:|---:|---:|---:|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _row(name: str, gates: int) -> str:
    rates = [simulate(CASES[name], gates=gates, factor=factor) for factor in FACTORS]
    power = [rates[1].passed, rates[2].over, rates[3].passed, rates[4].over]
    cells = [f"{rates[0].passed:.1%}", f"{rates[0].over:.1%}", *(f"{value:.0%}" for value in power)]
    return f"| {name} | {' | '.join(cells)} | {', '.join(f'{item.runs:.0f}' for item in rates)} |"


def document(path: Path, text: str) -> None:
    """Replaces what stands between the marks."""
    before, rest = path.read_text(encoding="utf-8").split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    path.write_text(f"{before}{MARKS[0]}\n{text}{MARKS[1]}{after}", encoding="utf-8")


def main() -> None:
    """Prints the table, or writes it into a document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--gates", type=int, default=2000, help="simulated gates of each case and budget")
    parser.add_argument("--document", type=Path)
    options = parser.parse_args()
    text = table(options.gates)
    print(text)
    if options.document is not None:
        note = f"\n{options.gates} gates a cell, `python -m benchmarks.studies.gate_errors --gates {options.gates}`.\n"
        document(options.document, f"\n{text}{note}\n")


if __name__ == "__main__":
    main()
