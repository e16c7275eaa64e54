"""What each way of quantising costs: every converted file on the test split, through its own tokenizer and runtime.

    python -m benchmarks.studies.quantization --data DIR --models TEACHER STUDENT [--qat STUDENT] [--to onnx tflite]

Writes ``quantization.json`` and ``quantization.md`` into ``-o DIR``. "net" is the change in the number of right answers
against the checkpoint in PyTorch; "changed" counts all answers that differ. Latency is no part of it.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

import compressor.app.stages  # noqa: F401  registers the stages
from compressor.core.artifact import FORMATS, Format, IOSpec, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import CompressorError
from compressor.core.folders import write_json, write_text
from compressor.core.schema import Record
from compressor.core.spread import spread
from compressor.data.batches import encode_split
from compressor.data.dataset import TextDataset
from compressor.data.reader import DataSpec, read_dataset
from compressor.evaluation import evaluate_logits, predict_logits
from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.quantize.plan import QuantizationPlan
from compressor.quantize.qat import QAT, QATConfig
from compressor.stage import Context
from compressor.text import SentenceEncoder
from export.backend import Backend, ConversionSpec, backend_for
from export.calibration import Calibration
from export.text_predictor import TextPredictor

WAYS: dict[str, tuple[Precision, QuantizationPlan]] = {
    "fp32": ("fp32", QuantizationPlan()),
    "fp16": ("fp16", QuantizationPlan()),
    "int8 dynamic": ("int8", QuantizationPlan()),
    "int8 static": ("int8", QuantizationPlan(method="static")),
    "int4": ("int4", QuantizationPlan.uniform("int4")),
}
CALIBRATION_TEXTS = 256


class Row(Record):
    """One converted file."""

    model: str
    format: str
    way: str
    accuracy: float | None = None
    checkpoint_accuracy: float
    """Of the trained model in PyTorch, FP32; for QAT, of the model before that training."""
    net: int | None = None
    """Right answers gained (positive) or lost against that."""
    changed: int | None = None
    """Answers that differ from that model's, right or wrong."""
    examples: int
    ece_before: float
    ece_after: float | None = None
    size_mb: float | None = None
    size_ratio: float | None = None
    """To the FP32 file of the same format."""
    seconds: float = 0.0
    failed: str | None = None

    @property
    def drop_points(self) -> float | None:
        """Percentage points lost."""
        return None if self.accuracy is None else round(100 * (self.checkpoint_accuracy - self.accuracy), 4)


def main() -> None:
    """Runs the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", type=Path, nargs="+", required=True)
    parser.add_argument("--qat", type=Path, nargs="*", default=[], help="Of these, trained for INT8 as well.")
    parser.add_argument("--qat-methods", nargs="+", choices=("dynamic", "static"), default=["dynamic", "static"])
    parser.add_argument("--to", nargs="+", choices=FORMATS[:2], default=list(FORMATS[:2]))
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--epochs", type=float, default=1.0, help="Of QAT.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("quantization-study"))
    options = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    options.output.mkdir(parents=True, exist_ok=True)
    data = read_dataset(DataSpec(dir=options.data))
    rows: list[Row] = []
    for path in options.models:
        checkpoint = Checkpoint.open(path)
        study = Study(checkpoint, data.with_label_order(checkpoint.labels), tuple(sorted(options.lengths)))
        for kind in options.to if options.ways else ():
            for row in study.files(kind, options.ways):
                rows.append(row)
                save(rows, options.output)
        if path in options.qat:
            for method in options.qat_methods:
                for row in study.trained(method, options.to, options.epochs, options.threads):
                    rows.append(row)
                    save(rows, options.output)


class Study:
    """One checkpoint and its answers in PyTorch."""

    def __init__(self, checkpoint: Checkpoint, data: TextDataset, lengths: tuple[int, ...]) -> None:
        self.checkpoint, self.data, self.lengths = checkpoint, data, lengths
        self.name = checkpoint.path.name
        encoded = encode_split(checkpoint, data.test, max_tokens=lengths[-1])
        self.reference = predict_logits(load_compressed(checkpoint.path), encoded)
        self.before = evaluate_logits(self.reference, data.test.labels)

    def files(self, kind: Format, ways: list[str]) -> Iterator[Row]:
        """Yields one row a way, from one FP32 conversion."""
        with tempfile.TemporaryDirectory() as folder:
            converted = _Converted(self.checkpoint, backend_for(kind), Path(folder), self.lengths, self.data)
            for way in ways:
                yield self._row(converted, way, *WAYS[way])

    def trained(self, method: str, formats: list[Format], epochs: float, threads: int) -> Iterator[Row]:
        """Trains for INT8 and yields one row a format."""
        with tempfile.TemporaryDirectory() as folder:
            scratch, output = Path(folder, "scratch"), Path(folder, "qat")
            scratch.mkdir()
            output.mkdir()
            context = Context(
                teacher=self.checkpoint, current=self.checkpoint, data=self.data, threads=threads,
                workdir=Path(folder), scratch=scratch,
            )  # fmt: skip
            QAT(QATConfig.model_validate({"method": method, "epochs": epochs})).run(context, output)
            made = Checkpoint.open(output)
            plan = QuantizationPlan.model_validate(made.quantization)
            for kind in formats:
                place = Path(folder, kind)
                place.mkdir()
                converted = _Converted(made, backend_for(kind), place, self.lengths, self.data)
                yield self._row(converted, f"int8 {method}, qat", "int8", plan)

    def _row(self, converted: _Converted, way: str, precision: Precision, plan: QuantizationPlan) -> Row:
        backend, start = converted.backend, time.perf_counter()
        row = Row(
            model=self.name, format=backend.format, way=way, checkpoint_accuracy=self.before.value,
            examples=self.before.examples, ece_before=self.before.expected_calibration_error or 0.0,
        )  # fmt: skip
        if not backend.offers(precision):
            return row.model_copy(update={"failed": "not offered"})
        folder = converted.folder / way.replace(" ", "-").replace(",", "")
        folder.mkdir(exist_ok=True)
        try:
            backend.reduce(converted.fp32, folder, precision, plan, converted.calibration)
            logits = converted.predictor(folder).run(self.data.test.texts).logits
        except CompressorError as error:
            return row.model_copy(update={"failed": error.message})
        after = evaluate_logits(logits, self.data.test.labels)
        size = _bytes(backend, folder)
        return row.model_copy(
            update={
                "accuracy": after.value,
                "net": (after.correct or 0) - (self.before.correct or 0),
                "changed": int((logits.argmax(axis=1) != self.reference.argmax(axis=1)).sum()),
                "ece_after": after.expected_calibration_error,
                "size_mb": size / 1e6,
                "size_ratio": size / _bytes(backend, converted.fp32),
                "seconds": time.perf_counter() - start,
            }
        )


class _Converted:
    """One format's FP32 file of a checkpoint, and what is needed to reduce and run it."""

    def __init__(
        self, checkpoint: Checkpoint, backend: Backend, folder: Path, lengths: tuple[int, ...], data: TextDataset
    ) -> None:
        self.backend, self.folder, self.fp32 = backend, folder, folder / "converted"
        model = load_compressed(checkpoint.path)
        adapter = adapter_for(model.config)
        self._encoder = SentenceEncoder.load(checkpoint.path, max_tokens=lengths[-1])
        self._lengths = lengths
        spec = ConversionSpec(
            lengths=lengths, max_tokens=lengths[-1], takes_token_types=adapter.takes_token_types(model.config),
            pad_id=self._encoder.pad_id, num_labels=len(checkpoint.labels), model_type=adapter.model_type,
        )  # fmt: skip
        self.fp32.mkdir()
        backend.convert(model, spec, self.fp32)
        texts = data.train.texts
        chosen = [texts[at] for at in spread(len(texts), CALIBRATION_TEXTS)]
        self.calibration = Calibration(encoder=self._encoder, texts=chosen, lengths=lengths)

    def predictor(self, folder: Path) -> TextPredictor:
        """Opens a file in its own runtime."""
        io = IOSpec(
            max_tokens=self._lengths[-1], lengths=() if self.backend.dynamic_lengths else self._lengths,
            pad_id=self._encoder.pad_id, signatures=self.backend.signatures(folder),
        )  # fmt: skip
        return TextPredictor(self._encoder, io, self.backend.open(folder, io, threads=1))


def table(rows: list[Row]) -> str:
    """Returns the rows as a markdown table."""
    lines = [
        "| model | format | way | accuracy % | drop, points | net | changed | ECE, before → after | MB | to FP32 |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        if row.accuracy is None or row.ece_after is None:
            lines.append(f"| {row.model} | {row.format} | {row.way} | {row.failed} | | | | | | |")
            continue
        lines.append(
            f"| {row.model} | {row.format} | {row.way} | {100 * row.accuracy:.2f} | {row.drop_points:+.2f} | "
            f"{row.net:+d} | {row.changed} | {row.ece_before:.4f} → {row.ece_after:.4f} | {row.size_mb:.2f} | "
            f"{row.size_ratio:.3f} |"
        )
    return "\n".join(lines) + "\n"


def save(rows: list[Row], output: Path) -> None:
    """Writes what is known so far, and shows the newest row."""
    write_json(output / "quantization.json", [row.model_dump(mode="json") for row in rows])
    write_text(output / "quantization.md", table(rows))
    print(table(rows[-1:]).splitlines()[-1], flush=True)


def _bytes(backend: Backend, folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob(f"{backend.model_file}*"))


if __name__ == "__main__":
    main()
