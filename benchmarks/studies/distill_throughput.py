"""Sentences a second of distillation: our loop from its second epoch on against a plain one, side by side.

Run: ``python -m benchmarks.studies.distill_throughput path/to/sst2/train.tsv [--rows 4096] [--steps 20] [--rounds 5]
[--threads 1]``. Both train the same three layers of the packaged MiniLM with the same losses (logits and hidden states)
and batches of 32 sentences. Ours reads batches of like length and the teacher's kept outputs, as every epoch after the
first does; what the first costs more is ``fill_s``. The plain loop is what one writes first: sentences in their order,
each padded to 128 tokens, the teacher run in each step. Blocks of steps alternate. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

PADDED = 128
BATCH = 32
LAYERS = 3


def main() -> None:
    """Prints the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train", type=Path, help="labelled text with a header, e.g. SST-2's train.tsv")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=20, help="steps of a block")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(compare(options.train, options.rows, options.steps, options.rounds, options.threads), indent=2))


def compare(file: Path, rows: int, steps: int, rounds: int, threads: int) -> dict[str, Any]:
    """Returns the rates of every block, their medians and the ratio."""
    from compressor.core.checkpoint import Checkpoint
    from compressor.data.batches import encode_split
    from compressor.data.columns import label_order, label_values, labelled_split, text_columns
    from compressor.data.dataset import sampled
    from compressor.data.demo_model import demo_teacher
    from compressor.data.tables import read_table
    from compressor.distill.losses import HiddenLoss, LogitsLoss, needs_of
    from compressor.distill.outputs import model_shape
    from compressor.distill.students import CopiedStudent
    from compressor.distill.teacher import TeacherOutputs
    from compressor.models import load_compressed
    from compressor.train.runtime import reproducible

    table = read_table(file)
    names = label_order(table, "label", label_values(table, "label"))
    split = sampled(labelled_split(table, text_columns(table, None), "label", names), rows)
    checkpoint = Checkpoint.open(demo_teacher())
    losses = (LogitsLoss(), HiddenLoss())
    with reproducible(seed=0, threads=threads), tempfile.TemporaryDirectory() as folder:
        teacher = load_compressed(checkpoint, num_labels=len(names))
        data = encode_split(checkpoint, split, max_tokens=PADDED)
        make = CopiedStudent(layers=LAYERS).make
        shapes = model_shape(make(teacher).config), model_shape(teacher.config)
        _, needs = needs_of(losses, *shapes)
        started = time.perf_counter()
        outputs = TeacherOutputs(
            teacher, data, needed=range(len(data)), states=needs.states, layers=needs.layers,
            width=shapes[1].hidden_size, folder=Path(folder), cache_mb=4096,
        )  # fmt: skip
        fill = time.perf_counter() - started
        ours, plain = [], []
        for number in range(rounds + 1):
            blocks = (
                _ours(make(teacher), outputs, losses, shapes, data, steps, seed=number, folder=Path(folder)),
                _plain(make(teacher), teacher, losses, shapes, data, steps, first=number * steps * BATCH),
            )
            if number:  # the first block of each warms up
                ours.append(blocks[0])
                plain.append(blocks[1])
    return {
        "sentences": len(split), "mean_tokens": sum(data.lengths) / len(data), "threads": threads, "steps": steps,
        "fill_s": round(fill, 2), "ours_per_s": ours, "plain_per_s": plain,
        "ours_median_per_s": median(ours), "plain_median_per_s": median(plain), "ratio": median(ours) / median(plain),
    }  # fmt: skip


def _ours(
    student: Any, outputs: Any, losses: Any, shapes: Any, data: Any, steps: int, *, seed: int, folder: Path
) -> float:
    """Returns sentences a second of our loop, its own start and end included."""
    from compressor.distill.objective import Distillation
    from compressor.train.loop import train
    from compressor.train.settings import TrainSettings

    objective = Distillation(student, outputs, losses, student_shape=shapes[0], teacher_shape=shapes[1])
    settings = TrainSettings(epochs=(steps - 0.5) / -(-len(data) // BATCH), batch_size=BATCH)  # rounded up to steps
    scratch = folder / f"run-{seed}"
    scratch.mkdir()
    started = time.perf_counter()
    curves = train(objective, data, settings, seed=seed, scratch=scratch)
    return len(curves["total"]) * BATCH / (time.perf_counter() - started)


def _plain(student: Any, teacher: Any, losses: Any, shapes: Any, data: Any, steps: int, *, first: int) -> float:
    """Returns sentences a second of the loop one writes first."""
    import torch

    from compressor.distill.capture import run_model
    from compressor.distill.losses import needs_of

    terms = [loss.term(*shapes) for loss in losses]
    ours, theirs = needs_of(losses, *shapes)
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4)
    student.train()
    started = time.perf_counter()
    for step in range(steps):
        rows = [(first + step * BATCH + place) % len(data) for place in range(BATCH)]
        batch = data.encoder.pad([data.encoded[row] for row in rows], PADDED)
        inputs = {name: torch.from_numpy(array) for name, array in batch.items()}
        labels = torch.tensor([data.labels[row] for row in rows])
        with torch.no_grad():
            target = run_model(teacher, inputs, theirs.states, theirs.layers)
        found = run_model(student, inputs, ours.states, ours.layers)
        loss = torch.stack([term(found, target, inputs["attention_mask"], labels) for term in terms]).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return steps * BATCH / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
