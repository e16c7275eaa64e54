"""Plays NVIDIA's trtexec for tests: the options, log lines and files of a version, with times that are made up.

TRTEXEC_VERSION=8601 trtexec_stand_in.py --help | --onnx=… --saveEngine=… | --loadEngine=… --exportTimes=…
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

OPTIONS = {
    (8, 2): "--fp16",
    (8, 4): "--fp16 --timingCacheFile",
    (8, 6): "--fp16 --timingCacheFile --skipInference",
    (10, 3): "--fp16 --stronglyTyped --timingCacheFile --skipInference",
    (11, 0): "--stronglyTyped --timingCacheFile --skipInference --includeDataTransfers --noCudaGraph --noSpinWait",
}
KNOWN = ("--onnx", "--saveEngine", "--minShapes", "--optShapes", "--maxShapes", "--profilingVerbosity", "--loadInputs",
         "--exportLayerInfo", "--loadEngine", "--shapes", "--iterations", "--duration", "--warmUp", "--avgRuns",
         "--exportTimes", "--help")  # fmt: skip
FIRST_MS, EACH_MS = 40.0, 2.0
"""Latency of the first run of a process, and of those that follow."""


def main() -> int:
    number = os.environ["TRTEXEC_VERSION"]
    version = (int(number[0]), int(number[1])) if len(number) <= 4 else (int(number[:-4]), int(number[-4:-2]))
    print(f"&&&& RUNNING TensorRT.trtexec [TensorRT v{number}] # trtexec {' '.join(sys.argv[1:])}")
    given = dict(word.partition("=")[::2] for word in sys.argv[1:])
    allowed = {*KNOWN, *OPTIONS[version].split()}
    if unknown := [name for name in given if name not in allowed]:
        print(f"[E] Unknown option: {unknown[0]}\n&&&& FAILED TensorRT.trtexec")
        return 1
    if "--help" in given:
        print("\n".join(f"  {name}" for name in sorted(allowed)))
        return 0
    if os.environ.get("TRTEXEC_FAILS"):
        print("[E] Error[4]: the network does not build\n&&&& FAILED TensorRT.trtexec")
        return 1
    if "--saveEngine" in given:
        Path(given["--saveEngine"]).write_text(f"engine of {number}", encoding="utf-8")
        with Path(os.environ["TRTEXEC_BUILDS"]).open("a", encoding="utf-8") as builds:
            builds.write(f"{number}\n")
        return 0
    if Path(given["--loadEngine"]).read_text(encoding="utf-8") != f"engine of {number}":
        print("[E] Error[6]: The engine plan file is not compatible with this version of TensorRT\n&&&& FAILED")
        return 1
    for item in given["--loadInputs"].split(","):
        name, _, path = item.partition(":")
        print(f"[I] {name}: {len(Path(path).read_bytes())} bytes")
    report(version, runs=int(given["--iterations"]), warm_up=float(given["--warmUp"]), times=given["--exportTimes"])
    return 0


def report(version: tuple[int, int], *, runs: int, warm_up: float, times: str) -> None:
    """Until 8.4 the file holds the warm-up's runs too; the copies' columns have had two names."""
    copy_in, copy_out = ("In", "Out") if version < (8, 5) else ("H2d", "D2h")
    rows, clock = [], 0.0
    started = warm_up if version < (8, 5) else 0.0
    while clock < started or sum(row["startComputeMs"] >= started for row in rows) < runs:
        latency = FIRST_MS if not rows and warm_up == 0 else EACH_MS
        rows.append({
            f"start{copy_in}Ms": clock, f"end{copy_in}Ms": clock, "startComputeMs": clock,
            "endComputeMs": clock + latency, f"start{copy_out}Ms": clock + latency, f"end{copy_out}Ms": clock + latency,
            "computeMs": latency, "latencyMs": latency if clock >= started else 900.0,
        })  # fmt: skip
        clock += latency
    Path(times).write_text(json.dumps(rows), encoding="utf-8")
    print("[I] Engine deserialized in 0.125 sec.")
    print("[I] === Performance summary ===")
    print("[I] Latency: min = 2 ms, max = 2 ms, mean = 2 ms, median = 2 ms, percentile(99%) = 2 ms")
    print("[W] * GPU compute time is unstable, with coefficient of variance = 9%.")


if __name__ == "__main__":
    sys.exit(main())
