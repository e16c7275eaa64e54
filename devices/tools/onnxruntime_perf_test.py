"""ONNX Runtime's ``onnxruntime_perf_test``; its own result file (``-p``) has every single time."""

from __future__ import annotations

import csv
import io
import re

from compressor.core.errors import DeviceError
from devices.tools.result import ToolResult

_NAMES = {"Min": "min_ms", "Max": "max_ms", "P50": "p50_ms", "P90": "p90_ms", "P95": "p95_ms", "P99": "p99_ms"}
_LATENCY = re.compile(r"^(Min|Max|P\d+) Latency(?: is|:) ([\d.e+-]+) ?s", re.MULTILINE)


def command(program: str, model: str, result: str, *, threads: int = 1, runs: int = 200) -> list[str]:
    """Returns the command that times a model on generated inputs and writes single times to ``result``."""
    return [
        program,
        "-I",
        "-m",
        "times",
        "-r",
        str(runs),
        "-x",
        str(threads),
        "-y",
        "1",
        "-e",
        "cpu",
        "-p",
        result,
        model,
    ]


def parse(text: str, single: str | None = None) -> ToolResult:
    """Parses the output and, where there is one, the result file.

    Args:
        text: standard output.
        single: the result file: comma-separated, one line a run, the time in seconds in its fourth column
            (model, provider, version, time, …).

    Raises:
        DeviceError: no timings.
    """
    found: dict[str, float] = {}
    for name, value in _LATENCY.findall(text):
        if name in _NAMES:
            found[_NAMES[name]] = float(value) * 1e3
    mean = re.search(r"Average (?:time cost|inference time cost)[^:]*: ([\d.]+) ms", text)
    count = re.search(r"Total (?:iterations|inference requests): (\d+)", text)
    load = re.search(r"Session creation time cost: ([\d.]+) s", text)
    first = re.search(r"First inference time cost: ([\d.]+) ms", text)
    if mean is None and not found:
        raise DeviceError("onnxruntime_perf_test printed no timings", remedy="run it by hand and look")
    result = ToolResult(
        tool="onnxruntime_perf_test",
        runs_ms=_single(single) if single else (),
        mean_ms=float(mean[1]) if mean else None,
        count=int(count[1]) if count else None,
        load_ms=float(load[1]) * 1e3 if load else None,
        cold_ms=float(first[1]) if first else None,
    )
    return result.model_copy(update=found)


def _single(text: str) -> tuple[float, ...]:
    times = []
    for row in csv.reader(io.StringIO(text)):
        try:
            times.append(float(row[3]) * 1e3)
        except (IndexError, ValueError):
            continue
    return tuple(times)
