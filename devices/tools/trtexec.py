"""NVIDIA's ``trtexec``, from TensorRT 8.2 to 11: its log is a summary, its ``--exportTimes`` file has every run.

What the versions call latency differs: 8.x and 10.x include the copies to and from the GPU, 11 leaves them out unless
asked, and runs CUDA graphs and spins by default. So the settings that change the meaning are always given, where the
version has them, and percentiles are computed here from single times. Before 8.5 the file may also hold the warm-up.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

from compressor.core.errors import DeviceError
from devices.tools.result import ToolResult

_VERSION = re.compile(r"\[TensorRT v(\d{4,})\]")
_LATENCY = re.compile(r"\[I\] Latency: (.*)$", re.MULTILINE)
_FIGURE = re.compile(r"(min|max|mean|median|percentile\((\d+)%\)) = ([\d.]+) ms")
_LOADED = re.compile(r"Engine (?:deserialized|loaded) in ([\d.]+) sec")
_FIRST_WITHOUT_WARMUP = (8, 5)
_NAMES = {"min": "min_ms", "max": "max_ms", "mean": "mean_ms", "median": "p50_ms"}
_PERCENTILES = {"90": "p90_ms", "95": "p95_ms", "99": "p99_ms"}


def version_of(text: str) -> tuple[int, ...] | None:
    """Returns the version in a log's first line, e.g. (8, 6, 1) of ``v8601`` and (10, 3, 0) of ``v100300``.

    Until TensorRT 9 the number is major * 1000 + minor * 100 + patch (``NV_TENSORRT_VERSION`` in NvInfer.h); from 10
    on, each has two digits.
    """
    found = _VERSION.search(text)
    if found is None:
        return None
    digits = found[1]
    if len(digits) <= 4:
        return int(digits[0]), int(digits[1]), int(digits[2:])
    return int(digits[:-4]), int(digits[-4:-2]), int(digits[-2:])


def measure_command(
    program: str,
    engine: str,
    *,
    help_text: str,
    shapes: Mapping[str, Sequence[int]],
    inputs: Mapping[str, str],
    times: str,
    runs: int = 200,
    warm_up_ms: int = 500,
) -> list[str]:
    """Returns the command that times a built engine, with copies counted, no CUDA graph and no spinning.

    Args:
        program: path of trtexec.
        engine: the engine's path.
        help_text: what ``trtexec --help`` prints: which options there are.
        shapes: shape of each input.
        inputs: file with each input's raw values: real tokenised sentences, not random numbers.
        times: where the single times are written.
        runs: timed runs at least.
        warm_up_ms: how long it runs untimed.
    """
    shape = ",".join(f"{name}:{'x'.join(map(str, sizes))}" for name, sizes in shapes.items())
    loaded = ",".join(f"{name}:{path}" for name, path in inputs.items())
    command = [program, f"--loadEngine={engine}", f"--shapes={shape}", f"--loadInputs={loaded}",
               f"--iterations={runs}", "--duration=0", f"--warmUp={warm_up_ms}", "--avgRuns=1",
               f"--exportTimes={times}"]  # fmt: skip
    if "--includeDataTransfers" in help_text:
        command.append("--includeDataTransfers")
    for switch in ("--noCudaGraph", "--noSpinWait"):
        if switch in help_text:
            command.append(switch)
    return command


def parse(text: str, times: str | None = None, *, warm_up_ms: float = 500.0) -> ToolResult:
    """Parses a log and, where there is one, the file of single times.

    Args:
        text: the log.
        times: the content of the ``--exportTimes`` file.
        warm_up_ms: what ``--warmUp`` was, to leave the warm-up's rows out where the version exports them.

    Raises:
        DeviceError: trtexec failed, or the log has no latency line.
    """
    if "&&&& FAILED" in text or re.search(r"^\[[^]]*\] \[E\] Error\[", text, re.MULTILINE):
        errors = [line for line in text.splitlines() if "[E]" in line]
        raise DeviceError(
            f"trtexec failed: {errors[0][:300] if errors else 'no message'}", remedy="build the engine on this device"
        )
    version = version_of(text)
    latency = _LATENCY.search(text)
    if latency is None and times is None:
        raise DeviceError("trtexec printed no latency", remedy="run it by hand and look")
    figures: dict[str, float] = {}
    for name, percent, value in _FIGURE.findall(latency[1] if latency else ""):
        key = _PERCENTILES.get(percent) if percent else _NAMES[name]
        if key:
            figures[key] = float(value)
    single = () if times is None else single_times(times, version, warm_up_ms=warm_up_ms)
    if single:
        figures = {
            "mean_ms": sum(single) / len(single), "min_ms": min(single), "max_ms": max(single),
            **{f"p{percent}_ms": _percentile(single, percent / 100) for percent in (50, 90, 95, 99)},
        }  # fmt: skip
    return ToolResult(
        tool="trtexec",
        version=".".join(map(str, version)) if version else None,
        runs_ms=single,
        count=len(single) or None,
        load_ms=float(loaded[1]) * 1e3 if (loaded := _LOADED.search(text)) else None,
        notes=tuple(line.partition("[W] ")[2].strip("* ") for line in text.splitlines() if "[W] *" in line),
        **figures,
    )


def single_times(times: str, version: tuple[int, ...] | None, *, warm_up_ms: float) -> tuple[float, ...]:
    """Returns every timed run's ``latencyMs``: copy in, compute and copy out, as far as the version was told to copy.

    Raises:
        DeviceError: the file is none of trtexec's.
    """
    try:
        rows = json.loads(times)
        if not isinstance(rows, list) or not rows:
            raise ValueError("it holds no list of runs")
        if version is None or version < _FIRST_WITHOUT_WARMUP:
            # trtexec's own rule (samples/common/sampleReporting.cpp, printPerformanceReport): it drops nothing of a
            # file that holds no warm-up, should a patch of 8.4 have been the first to leave it out.
            rows = [row for row in rows if float(row["startComputeMs"]) >= warm_up_ms]
        return tuple(float(row["latencyMs"]) for row in rows)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DeviceError(f"the file of single times cannot be read: {error}", remedy="measure again") from error


def _percentile(values: Sequence[float], share: float) -> float:
    """The smallest time that at least ``share`` of the runs do not exceed, as everywhere in this project."""
    return sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]
