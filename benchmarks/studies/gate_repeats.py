"""Does the gate say the same every time? Repeated gates of a real artifact on this machine, with a neighbour at work.

    python -m benchmarks.studies.gate_repeats ARTIFACT [--repeats 20] [--no-load]

The true p95 is measured first, with many runs and the same neighbour. Then the artifact is gated at 1.3 times that p95,
where it should pass, and at 0.75 times, where it should be over budget. Wanted: the right verdict in at least 19 of 20
repeats, never the opposite one, each decided in under 20 seconds for a model of 2 ms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import measure
from benchmarks.statistics import autocorrelation, percentile
from benchmarks.subject import subject_of
from compressor.app import latency
from compressor.app.inputs import read_texts
from compressor.core.artifact import Artifact
from devices.profiles import parse_device

FACTORS = {1.3: "pass", 0.75: "over_budget"}
TRUTH_RUNS = 2000
TRUTH_PROCESSES = 40


def _spin(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    while True:
        sum(range(10_000))


@contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """Keeps one core busy while the block runs."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    worker = multiprocessing.Process(target=_spin, args=(cores[-1] if len(cores) > 1 else None,), daemon=True)
    if busy:
        worker.start()
    try:
        yield
    finally:
        if busy:
            worker.terminate()
            worker.join()


def repeats(artifact: Path, *, count: int, busy: bool, sentences: Path | None = None) -> dict[str, object]:
    """Runs the study and returns its figures: the true p95, and for each factor the verdicts and their seconds."""
    loaded = Artifact.load(artifact)
    texts = read_texts(sentences)[0]
    with neighbour(busy), tempfile.TemporaryDirectory() as folder:
        (truth,) = measure(
            [subject_of(loaded)], texts, device=parse_device("host"), runs=TRUTH_RUNS, processes=TRUTH_PROCESSES
        )
        p95 = percentile(truth.runs.inference_ms, 0.95)
        found: dict[str, object] = {
            "artifact": loaded.name,
            "busy_neighbour": busy,
            "true_p50_ms": percentile(truth.runs.inference_ms, 0.5),
            "true_p95_ms": p95,
            "lag1_autocorrelation": autocorrelation(truth.runs.inference_ms, truth.runs.process),
        }
        for factor, wanted in FACTORS.items():
            budget = Path(folder) / f"{factor}.yaml"
            budget.write_text(f"version: 1\nbudgets:\n  - {{device: host, p95_ms: {factor * p95:.6f}}}\n")
            verdicts: Counter[str] = Counter()
            seconds, runs = [], []
            for _ in range(count):
                started = time.monotonic()
                verdict = latency.gate(loaded.path, budget=budget, sentences=sentences)
                seconds.append(time.monotonic() - started)
                verdicts[verdict.verdict] += 1
                runs.append(verdict.checks[0].runs)
            found[f"budget {factor} x p95"] = {
                "wanted": wanted,
                "verdicts": dict(verdicts),
                "median_seconds": statistics.median(seconds),
                "longest_seconds": max(seconds),
                "median_runs": statistics.median(runs),
            }
    return found


def main() -> None:
    """Prints the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--sentences", type=Path)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--no-load", action="store_true", help="leave the other core alone")
    options = parser.parse_args()
    found = repeats(options.artifact, count=options.repeats, busy=not options.no_load, sentences=options.sentences)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
