"""What a conversion costs beside the underlying library's own call for the same signatures, and in memory.

Each way runs in a process of its own, one after the other and in turn, on the same model: ``torch.onnx.export`` or
litert-torch's ``convert`` alone, and the whole of the backend's ``convert`` (wrapper, cleaning or compacting, check of
what was written); proof against PyTorch is no part of it. ``int8`` is what static INT8 costs once the FP32 file is
there, calibration on CALIBRATION_TEXTS sentences included. Prints one JSON document; its ratios are of CPU seconds,
which other work on the machine changes least.

    python -m benchmarks.studies.conversion_cost [--systems tinybert-4] [--formats onnx,tflite] [--ways library ours]
        [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.studies.process_memory import peak_bytes
from benchmarks.studies.systems import NAMES, write_checkpoint
from compressor.app.inputs import read_texts
from compressor.core.environment import machine
from compressor.data.intents import generate_intents
from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.quantize.plan import QuantizationPlan
from compressor.text import SentenceEncoder
from export.backend import ConversionSpec, backend_for
from export.calibration import Calibration

LENGTHS = (16, 32, 64, 128)
CALIBRATION_TEXTS = 128
WAYS = ("library", "ours", "ours, one length", "int8")


def spec_of(model: Any, lengths: tuple[int, ...]) -> ConversionSpec:
    """Returns the conversion spec of a loaded classifier."""
    config = model.config
    adapter = adapter_for(config)
    return ConversionSpec(
        lengths=lengths, max_tokens=lengths[-1], takes_token_types=adapter.takes_token_types(config),
        pad_id=int(config.pad_token_id or 0), num_labels=int(config.num_labels), model_type=adapter.model_type,
    )  # fmt: skip


def library_call(format_name: str, model: Any, spec: ConversionSpec, output: Path) -> None:
    """Converts with the library alone, the same model at the same lengths, and writes its file."""
    from export.onnx.tracing import TracedModel
    from export.tflite.quiet import quiet_native
    from export.tflite.wrapper import FixedLengthModel, sample_inputs

    if format_name == "tflite":
        import litert_torch

        wrapped, signatures = FixedLengthModel(model, spec).eval(), litert_torch
        for length in spec.lengths:
            signatures = signatures.signature(f"seq_{length}", wrapped, sample_kwargs=sample_inputs(spec, length))
        with quiet_native(), torch.no_grad():
            signatures.convert().export(str(output / "model.tflite"))
        return
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if spec.takes_token_types else [])]
    integer, rows = (torch.int32, 1) if format_name == "tensorrt" else (torch.int64, 2)
    example = tuple(torch.ones(rows, 8, dtype=integer) for _ in names)
    with torch.no_grad():
        torch.onnx.export(
            TracedModel(model, spec).eval(), example, str(output / "model.onnx"), dynamo=False, opset_version=18,
            input_names=names, output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "tokens"} if rows > 1 else {1: "tokens"} for name in names},
        )  # fmt: skip


def measure(way: str, format_name: str, checkpoint: Path) -> dict[str, float]:
    """Converts once in this process; returns seconds, and bytes above what the loaded model took."""
    torch.set_num_threads(1)
    model = load_compressed(checkpoint)
    if way == "int8":
        return _static_int8(format_name, model, checkpoint)
    lengths = LENGTHS[-1:] if way.endswith("one length") else LENGTHS
    convert: Callable[..., None] = library_call
    if way.startswith("ours"):
        backend = backend_for(format_name)  # type: ignore[arg-type]
        backend.require()

        def convert(format_name: str, model: Any, spec: ConversionSpec, output: Path) -> None:
            backend.convert(model, spec, output)

    with tempfile.TemporaryDirectory() as output:
        started, worked = time.monotonic(), time.process_time()
        convert(format_name, model, spec_of(model, lengths), Path(output))
        seconds, cpu_seconds = time.monotonic() - started, time.process_time() - worked
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak_bytes()}


def _static_int8(format_name: str, model: Any, checkpoint: Path) -> dict[str, float]:
    """Measures the way from the FP32 file to the static INT8 one."""
    backend, spec = backend_for(format_name), spec_of(model, LENGTHS)  # type: ignore[arg-type]
    encoder = SentenceEncoder.load(checkpoint, max_tokens=LENGTHS[-1])
    texts = generate_intents().train.texts[:CALIBRATION_TEXTS]
    with tempfile.TemporaryDirectory() as float_folder, tempfile.TemporaryDirectory() as output:
        backend.convert(model, spec, Path(float_folder))
        started, worked = time.monotonic(), time.process_time()
        plan = QuantizationPlan.uniform("int8", method="static")
        calibration = Calibration(encoder=encoder, texts=texts, lengths=LENGTHS)
        backend.reduce(Path(float_folder), Path(output), "int8", plan, calibration)
        seconds, cpu_seconds = time.monotonic() - started, time.process_time() - worked
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_bytes": peak_bytes()}


def main(arguments: list[str] | None = None) -> int:
    """Prints medians over the rounds for each system and format."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--systems", default="tinybert-4", help=f"comma-separated, of {', '.join(NAMES)}")
    parser.add_argument("--formats", default="onnx,tflite")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        way, format_name, checkpoint = options.one
        print(json.dumps(measure(way, format_name, Path(checkpoint))))
        return 0
    texts = tuple(str(text) for text in read_texts(None)[0])
    rows = []
    for system in options.systems.split(","):
        with tempfile.TemporaryDirectory() as folder:
            write_checkpoint(system, Path(folder), texts)
            formats = options.formats.split(",")
            rows += [_row(system, name, folder, options.rounds, options.ways) for name in formats]
    print(json.dumps({"machine": machine(), "lengths": LENGTHS, "rounds": options.rounds, "rows": rows}, indent=2))
    return 0


def _row(system: str, format_name: str, checkpoint: str, rounds: int, ways: Sequence[str]) -> dict[str, Any]:
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            command = [sys.executable, "-m", __spec__.name, "--one", way, format_name, checkpoint]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    seconds, cpu_seconds = (
        {way: statistics.median(item[name] for item in items) for way, items in found.items()}
        for name in ("seconds", "cpu_seconds")
    )
    return {
        "system": system,
        "format": format_name,
        "seconds": {way: round(value, 2) for way, value in seconds.items()},
        "cpu_seconds": {way: round(value, 2) for way, value in cpu_seconds.items()},
        "peak_gb": {way: round(max(item["peak_bytes"] for item in items) / 1e9, 2) for way, items in found.items()},
        "ours_to_library": _ratio(cpu_seconds, "ours", "library"),
        "four_lengths_to_one": _ratio(cpu_seconds, "ours", "ours, one length"),
    }


def _ratio(seconds: dict[str, float], way: str, other: str) -> float | None:
    return round(seconds[way] / seconds[other], 2) if {way, other} <= seconds.keys() else None


if __name__ == "__main__":
    sys.exit(main())
