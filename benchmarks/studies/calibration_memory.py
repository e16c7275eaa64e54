"""Memory that static calibration adds to a model, by the number of sentences: each count in a process of its own.

Run: ``python -m benchmarks.studies.calibration_memory MODEL TEXTS [--counts 100,1000,10000] [--observer auto]``, with a
Hugging Face folder and a text file of one sentence a line (a TSV's first column). The figure is the peak of the
resident set, less that of a process that calibrates on one sentence.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from itertools import cycle, islice
from pathlib import Path

from benchmarks.studies.process_memory import peak_bytes

LENGTHS = (16, 32, 64, 128)


def main() -> None:
    """Prints one line a count: sentences, seconds, peak in MB above that of one sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--counts", default="100,1000,10000")
    parser.add_argument("--observer", default="auto")
    parser.add_argument("--graph", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.graph is not None:
        print(json.dumps(measure(options.model, options.graph, options.texts, int(options.counts), options.observer)))
        return
    with tempfile.TemporaryDirectory() as folder:
        convert(options.model, Path(folder))
        alone = 0.0
        for count in ("1", *options.counts.split(",")):
            arguments = [str(options.model), str(options.texts), "--counts", count, "--observer", options.observer]
            command = [sys.executable, "-m", __spec__.name, *arguments, "--graph", folder]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            alone = alone or found["peak_mb"]
            print(f"{count} sentences: {found['seconds']:.0f} s, {found['peak_mb'] - alone:.0f} MB above {alone:.0f}")


def convert(model: Path, folder: Path) -> None:
    """Writes the FP32 graph of a classifier (a fresh head where there is none)."""
    from compressor.families import adapter_for
    from compressor.models import load_compressed
    from export.backend import ConversionSpec
    from export.onnx.backend import OnnxBackend

    loaded = load_compressed(model, num_labels=2)
    adapter, config = adapter_for(loaded.config), loaded.config
    spec = ConversionSpec(
        lengths=LENGTHS, max_tokens=LENGTHS[-1], takes_token_types=adapter.takes_token_types(config),
        pad_id=0, num_labels=2, model_type=adapter.model_type,
    )  # fmt: skip
    OnnxBackend().convert(loaded, spec, folder)


def measure(model: Path, graph: Path, texts: Path, count: int, observer: str) -> dict[str, float]:
    """Observes every matrix product's input on ``count`` sentences; returns seconds and the peak in MB."""
    import time

    from compressor.text import SentenceEncoder
    from export.calibration import Calibration
    from export.onnx import files
    from export.onnx.ranges import observe

    lines = [line.split("\t")[0] for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
    encoder = SentenceEncoder.load(model, max_tokens=LENGTHS[-1])
    loaded = files.load(graph / "model.onnx")
    tensors = [
        str(node.inputs[0].name) for node in loaded.graph if node.op_type == "MatMul" and node.inputs[0] is not None
    ]

    calibration = Calibration(encoder=encoder, texts=tuple(islice(cycle(lines), count)), lengths=LENGTHS)
    started = time.perf_counter()
    observe(loaded, tensors, calibration, observer)  # type: ignore[arg-type]
    peak = peak_bytes() / 1e6
    return {"peak_mb": peak, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
