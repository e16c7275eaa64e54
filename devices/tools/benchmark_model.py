"""LiteRT's ``benchmark_model``, in the four forms its output has had.

- TensorFlow 2.3 and before: ``count=… avg=…`` without a prefix, "Peak memory footprint";
- until 2.13: the same behind ``INFO:``, "Memory footprint delta";
- later: ``p5=… median=… p95=…`` at the end of the counting line (a single run has no ``avg``);
- LiteRT's ``benchmark_litert_model``: one line a figure, in milliseconds.

None gives single times: all are summaries.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from compressor.core.errors import DeviceError
from devices.tools.result import ToolResult

_COUNT = re.compile(r"^(?:INFO: )?count=(\d+) (.*)$", re.MULTILINE)
_PAIR = re.compile(r"(\w+)=([\d.e+-]+)")
_TIMINGS = re.compile(r"Inference timings in us: (.*)$", re.MULTILINE)
_TIMING = re.compile(r"([\w ()]+): ([\d.e+]+)")
_MEMORY = re.compile(r"(?:emory footprint)[^:]*: init=[\d.]+ overall=([\d.]+)")
_LITERT = re.compile(
    r"\] (Model initialization|Warmup \(avg\)|Inference \((?:avg|min|max|std)\)): +"
    r"([\d.]+)(?: ms)?(?: \((\d+) runs?\))?"
)


def command(program: str, model: str, *, threads: int = 1, runs: int = 200, signature: str | None = None) -> list[str]:
    """Returns the command that times a model on the CPU, one input set, with an exact number of runs.

    ``min_secs`` and ``max_secs`` are given because the defaults end a run by time.
    """
    options = [f"--graph={model}", f"--num_threads={threads}", f"--num_runs={runs}", "--warmup_runs=20",
               "--min_secs=0", "--max_secs=600", "--use_xnnpack=true"]  # fmt: skip
    return [program, *options, *([f"--signature_to_run_for={signature}"] if signature else [])]


def parse(text: str) -> ToolResult:
    """Parses standard output and error together.

    Raises:
        DeviceError: none of the known forms.
    """
    counts = _COUNT.findall(text)
    if counts:
        return _counted(text, counts)
    found = {name: (float(value), runs) for name, value, runs in _LITERT.findall(text)}
    if "Inference (avg)" in found:
        mean, runs = found["Inference (avg)"]
        return ToolResult(
            tool="benchmark_litert_model",
            mean_ms=mean,
            min_ms=found.get("Inference (min)", (None,))[0],
            max_ms=found.get("Inference (max)", (None,))[0],
            std_ms=found.get("Inference (std)", (None,))[0],
            load_ms=found.get("Model initialization", (None,))[0],
            count=int(runs) if runs else None,
        )
    last = text.strip().splitlines()[-1:] or ["nothing"]
    raise DeviceError(
        f"benchmark_model printed no timings; its last line: {last[0][:200]}", remedy="run it by hand and look"
    )


def _counted(text: str, counts: Sequence[tuple[str, str]]) -> ToolResult:
    # The warm-up has a counting line of its own, before the measurement's; a later line without avg is no better.
    count, pairs = max(enumerate(counts), key=lambda item: (int(item[1][0]) > 1, item[0]))[1]
    us = {name: round(float(value) / 1e3, 9) for name, value in _PAIR.findall(pairs)}
    timings = _TIMINGS.search(text)
    named = {
        name.strip(" ,"): round(float(value) / 1e3, 9) for name, value in _TIMING.findall(timings[1] if timings else "")
    }
    memory = _MEMORY.search(text)
    return ToolResult(
        tool="benchmark_model",
        count=int(count),
        mean_ms=us.get("avg", us.get("curr")),
        p50_ms=us.get("median"),
        p95_ms=us.get("p95"),
        min_ms=us.get("min"),
        max_ms=us.get("max"),
        std_ms=us.get("std"),
        load_ms=named.get("Init"),
        cold_ms=named.get("First inference", us.get("first")),
        peak_memory_mb=float(memory[1]) if memory else None,
    )
