"""Task score of models on a Snapdragon's NPU, in its simulator, against the FP32 graph on the same sentences.

    python -m benchmarks.studies.qnn_accuracy --model snips-student=CHECKPOINT --data snips-student=FOLDER \
        [--precisions w8a16,w8a8,fp16] [--device snapdragon-8gen3] [--examples 300] [--output results.json]

One model, one precision after the other, one simulator process at a time. It can be ended at any moment: compiled files
stay in ``--work`` and every simulated answer in the user's cache folder, and the next call goes on from there. The
result file is written after every precision; its figures are simulated, not run on hardware.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.studies.qnn_compiled import Subject, compiled, float_logits, simulated_logits
from compressor.core.artifact import NPU_PRECISIONS, Precision
from compressor.core.device import DeviceProfile
from compressor.core.folders import write_json
from compressor.core.spread import spread
from compressor.data.dataset import sampled
from compressor.data.reader import read_split
from compressor.evaluation import evaluate_logits
from devices.profiles import load_profile
from export.calibration import Calibration
from export.qnn.npu import library_versions

CALIBRATION_TEXTS = 512


def main() -> None:
    """Runs what is still missing and prints one row a model and precision."""
    options = _options()
    torch.set_num_threads(1)
    profile = load_profile(options.device)
    data = dict(item.split("=", 1) for item in options.data)
    rows: list[dict[str, object]] = json.loads(options.output.read_text()) if options.output.is_file() else []
    for item in options.model:
        name, folder = item.split("=", 1)
        subject = Subject.open(name, Path(folder), options.work / name, options.lengths, profile)
        for precision in options.precisions:
            done = [row for row in rows if (row["model"], row["precision"], row["device"]) ==
                    (name, precision, profile.name) and row["examples"] == options.examples]  # fmt: skip
            if not done:
                rows.append(_row(subject, Path(data[name]), precision, options.examples, profile))
                write_json(options.output, rows)
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()), sep=" | ")


def _row(
    subject: Subject, data: Path, precision: Precision, examples: int, profile: DeviceProfile
) -> dict[str, object]:
    split = sampled(read_split(data, subject.checkpoint.labels, split="test"), examples)
    train = read_split(data, subject.checkpoint.labels, split="train").texts
    texts = [train[at] for at in spread(len(train), CALIBRATION_TEXTS)]
    calibration = Calibration(encoder=subject.encoder, texts=texts, lengths=subject.lengths)
    made = compiled(subject, precision, calibration)
    reference = float_logits(subject, split.texts)
    start = time.perf_counter()
    found = simulated_logits(subject, made.folder, split.texts)
    fp32, npu = evaluate_logits(reference, split.labels), evaluate_logits(found, split.labels)
    noise = float(np.square(found - reference).mean())
    return {
        "model": subject.name,
        "precision": precision,
        "device": profile.name,
        "examples": options_count(len(split), examples),
        "fp32_accuracy": round(100 * fp32.value, 2),
        "simulated_accuracy": round(100 * npu.value, 2),
        "drop_points": round(100 * (fp32.value - npu.value), 2),
        "same_answer": round(100 * float((found.argmax(1) == reference.argmax(1)).mean()), 2),
        "signal_to_noise_db": round(10 * float(np.log10(reference.var() / noise)), 1),
        "delegated": round(made.placement.delegated, 4),
        "contexts": made.placement.contexts,
        "size_mb": round(made.size_mb, 2),
        "simulator_s": round(time.perf_counter() - start, 1),
        "simulated": True,
        **library_versions(),
    }


def options_count(found: int, asked: int) -> int:
    """Returns what was asked for where there were that many: the row is recognised by it."""
    return asked if found >= asked else found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", required=True, metavar="NAME=CHECKPOINT")
    parser.add_argument("--data", action="append", required=True, metavar="NAME=FOLDER")
    parser.add_argument("--device", default="snapdragon-8gen3")
    parser.add_argument("--examples", type=int, default=300)
    parser.add_argument("--lengths", type=_numbers, default=(16, 32, 64))
    parser.add_argument("--precisions", type=_precisions, default=("w8a16", "w8a8", "fp16"))
    parser.add_argument("--work", type=Path, default=Path("runs/qnn_accuracy"))
    parser.add_argument("--output", type=Path, default=Path("runs/qnn_accuracy.json"))
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _precisions(text: str) -> tuple[Precision, ...]:
    return tuple(known for part in text.split(",") for known in NPU_PRECISIONS if known == part.strip())


if __name__ == "__main__":
    main()
