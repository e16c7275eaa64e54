"""How many instructions one inference takes, counted by valgrind's callgrind: a regression check without a device.

Counts repeat where times do not, so that a change of runtime, exporter or graph shows on any busy machine. They are no
time, of no device, and are never turned into one: a slower kernel may well execute fewer instructions.

The native runner tells callgrind when its timed runs begin and end, so that loading, packing and warm-up do not count.

    python -m benchmarks.studies.instructions ARTIFACT [--tokens 16] [--baseline counts.json] [--tolerance 0.005]

Prints JSON; exit code 1 where a baseline is exceeded by more than the tolerance. x86-64 Linux with valgrind and a C
compiler; the runtime and its version are part of the answer, and a baseline of another one is refused.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.subject import Subject, subject_of
from compressor.core.artifact import Artifact
from compressor.core.errors import CompressorError, UsageError
from devices.runner import NATIVE, Job, WarmUp
from devices.runners.bundle import native_bundle
from devices.runners.native_request import request_text

RUNS = 4
LIMIT_S = 900.0
_TOTAL = re.compile(r"Collected\s*:\s*(\d+)")
_SENTENCE = "the answer is yes "


def instructions_per_inference(subject: Subject, *, tokens: int) -> dict[str, object]:
    """Counts the instructions of one inference at a length.

    Args:
        subject: an ONNX or TFLite artifact.
        tokens: how many tokens the sentence is cut to; the bucket that holds them is what runs.

    Returns:
        ``instructions``, ``tokens``, ``runtime`` and ``subject_hash``.

    Raises:
        UsageError: no valgrind, or a runtime that the native runner does not have.
        DeviceError: the runner does not build.
    """
    if shutil.which("valgrind") is None:
        raise UsageError("valgrind is not installed; it counts the instructions", remedy="apt install valgrind")
    runtime = NATIVE.get(subject.runtime)
    if runtime is None:
        raise UsageError(f"{subject.runtime} has no native runner", remedy="count an onnx or tflite artifact")
    bundle = native_bundle("x86_64", runtime)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text, _ = request_text(_job(subject, tokens), label=bundle.label)
        (folder / "request").write_text(text, encoding="utf-8")
        command = bundle.command(
            str(bundle.path), runtime, str(subject.model), str(folder / "request"), str(folder / "result")
        )
        total = _count(command, folder)
    return {
        "instructions": round(total / RUNS),
        "tokens": tokens,
        "runtime": bundle.label,
        "subject_hash": subject.hash,
    }


def change(found: dict[str, object], baseline: dict[str, object]) -> float:
    """Returns the relative change against a baseline.

    Raises:
        UsageError: the baseline is of another runtime or length, so that a change would mean nothing.
    """
    for name in ("runtime", "tokens"):
        if found[name] != baseline.get(name):
            raise UsageError(
                f"the baseline was counted with {name} {baseline.get(name)}, this one with {found[name]}",
                remedy="count the baseline again",
            )
    before = float(str(baseline["instructions"]))
    return (float(str(found["instructions"])) - before) / before


def _job(subject: Subject, tokens: int) -> Job:
    return Job(
        runtime=subject.runtime,
        model=str(subject.model),
        tokenizer=str(subject.tokenizer / "tokenizer.json"),
        threads=1,
        max_tokens=min(tokens, subject.max_tokens),
        lengths=subject.lengths,
        pad_id=subject.pad_id,
        signatures=subject.signatures,
        sentences=(_SENTENCE * tokens,),
        order=(0,) * RUNS,
        warmup=WarmUp(min_runs=1, max_runs=1, max_seconds=0.1),
    )


def _count(command: list[str], folder: Path) -> int:
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out", *command],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    found = _TOTAL.search(done.stderr)
    if done.returncode != 0 or found is None or not int(found[1]):
        raise UsageError(
            f"callgrind did not count: {done.stderr.strip().splitlines()[-1:]}", remedy="run it by hand and look"
        )
    return int(found[1])


def main() -> int:
    """Prints the count; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact", type=Path)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--tolerance", type=float, default=0.005)
    options = parser.parse_args()
    try:
        found = instructions_per_inference(subject_of(Artifact.load(options.artifact)), tokens=options.tokens)
        if options.baseline:
            found["change"] = change(found, json.loads(options.baseline.read_text(encoding="utf-8")))
    except CompressorError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(found))
    return int(float(str(found.get("change", 0.0))) > options.tolerance)


if __name__ == "__main__":
    sys.exit(main())
