"""Which way of distilling to choose: every named recipe against labels and logits alone, with equal steps.

    python -m benchmarks.studies.distillation --teacher CHECKPOINT --data DIR [--students 3x384 4x312]
        [--methods labels logits distilbert tinybert minilm minilmv2] [--seeds 0 1 2] [--epochs 2] -o DIR

A method is the ``distill`` stages of ``recipes/NAME.yaml`` with the study's student in place of their own and their
epochs scaled to ``--epochs`` in all. Every run leaves one JSON file in ``-o``; one that is there is not made again.
``distillation.md`` holds the mean and standard deviation over seeds of the accuracy on the test split.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import compressor.app.stages  # noqa: F401  registers the stages
from compressor.core.checkpoint import Checkpoint
from compressor.core.environment import machine
from compressor.core.folders import write_json, write_text
from compressor.data.dataset import TextDataset
from compressor.data.reader import DataSpec, read_dataset
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.stage import Context

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TEACHER = "teacher"
STUDENTS: dict[str, dict[str, Any] | None] = {
    "3x384": {"init": "copy", "layers": 3},
    "4x312": {"init": "slice", "layers": 4, "hidden_size": 312, "ffn": 1200},
    "own": None,
}
"""``own`` is the student that the recipe itself names."""
PLAIN: dict[str, list[dict[str, Any]]] = {
    "labels": [{"losses": [{"name": "labels"}], "lr": 2e-4, "epochs": 1}],
    "logits": [{"losses": [{"name": "logits", "temperature": 2.0}], "lr": 2e-4, "epochs": 1}],
    "logits+hidden": [
        {"losses": [{"name": "logits", "temperature": 2.0}, {"name": "hidden"}], "lr": 2e-4, "epochs": 1}
    ],
}


def stages(method: str, student: str, epochs: float) -> list[DistillConfig]:
    """Returns the method's distill stages, first to last, for one student and ``epochs`` in all."""
    found = PLAIN[method] if method in PLAIN else _recipe_stages(method)
    scale = epochs / sum(float(stage.get("epochs", 1.0)) for stage in found)
    made = []
    for place, stage in enumerate(found):
        settings = {key: value for key, value in stage.items() if key not in ("id", "student", "teacher")}
        settings["epochs"] = scale * float(stage.get("epochs", 1.0))
        own = STUDENTS[student] or stage.get("student")
        settings |= {"student": own} if place == 0 else {"teacher": TEACHER}
        made.append(DistillConfig.model_validate(settings))
    return made


def _recipe_stages(method: str) -> list[dict[str, Any]]:
    recipe = yaml.safe_load((RECIPES / f"{method}.yaml").read_text())
    return [stage["distill"] for stage in recipe["stages"] if isinstance(stage, dict) and "distill" in stage]


def distilled(
    teacher: Checkpoint, data: TextDataset, configs: Sequence[DistillConfig], *, seed: int, threads: int
) -> dict[str, Any]:
    """Runs the stages one after the other; returns the last one's facts with the seconds of all."""
    start, current, facts = time.perf_counter(), teacher, {}
    with tempfile.TemporaryDirectory(prefix="compressor-distillation-") as folder:
        for place, config in enumerate(configs):
            scratch, output = Path(folder, f"scratch-{place}"), Path(folder, f"student-{place}")
            scratch.mkdir()
            output.mkdir()
            context = Context(
                teacher=teacher, current=current, checkpoints={TEACHER: teacher}, data=data, seed=seed,
                threads=threads, workdir=Path(folder), scratch=scratch,
            )  # fmt: skip
            stage = Distill(config)
            stage.requires(context)
            facts = stage.run(context, output)
            current = Checkpoint.open(output)
    return {**facts, "seconds": time.perf_counter() - start}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the results as a Markdown table: one line a student and method, best first."""
    lines = [
        "| student | parameters | method | seeds | test accuracy % | of the teacher % | seconds a run |",
        "|---|--:|---|--:|--:|--:|--:|",
    ]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["student"], row["method"]), []).append(row)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -_mean(item[1])))
    for (student, method), runs in ordered:
        scores = [run["accuracy"] for run in runs]
        spread = f" ± {100 * statistics.stdev(scores):.2f}" if len(scores) > 1 else ""
        teacher = runs[0]["teacher_accuracy"]
        lines.append(
            f"| {student} | {runs[0]['parameters'] / 1e6:.1f} M | {method} | {len(runs)} | "
            f"{100 * _mean(runs):.2f}{spread} | {100 * _mean(runs) / teacher:.1f} | "
            f"{statistics.median(run['seconds'] for run in runs):.0f} |"
        )
    return "\n".join(lines) + "\n"


def _mean(runs: Sequence[dict[str, Any]]) -> float:
    return statistics.fmean(run["accuracy"] for run in runs)


def main() -> None:
    """Runs what is still missing, seed by seed so that an early end leaves whole columns, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--students", nargs="+", choices=list(STUDENTS), default=["3x384", "4x312"])
    parser.add_argument("--methods", nargs="+", default=[*PLAIN, "distilbert", "tinybert", "minilm", "minilmv2"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("distillation-study"))
    options = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    options.output.mkdir(parents=True, exist_ok=True)
    teacher = Checkpoint.open(options.teacher)
    data = read_dataset(DataSpec(dir=options.data)).with_label_order(teacher.labels)
    for seed in options.seeds:
        for student in options.students:
            for method in options.methods:
                file = options.output / f"{student}.{method}.{seed}.json"
                if file.is_file():
                    continue
                found = distilled(
                    teacher, data, stages(method, student, options.epochs), seed=seed, threads=options.threads
                )
                after = found["evaluation"]
                write_json(
                    file,
                    {
                        "student": student, "method": method, "seed": seed, "epochs": options.epochs,
                        "accuracy": after["student"]["test"]["value"],
                        "validation_accuracy": after["student"]["validation"]["value"],
                        "teacher_accuracy": after["teacher"]["test"]["value"],
                        "parameters": found["parameters"]["after"], "seconds": found["seconds"],
                        "curves": found["curves"], "machine": machine(),
                    },
                )  # fmt: skip
                rows = [json.loads(path.read_text()) for path in sorted(options.output.glob("*.*.*.json"))]
                write_text(options.output / "distillation.md", table(rows))
    print((options.output / "distillation.md").read_text())


if __name__ == "__main__":
    main()
