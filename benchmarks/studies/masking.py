"""Dynamic against static masking (Liu et al. 2019, section 4.1): held-out masked accuracy after some epochs.

    python -m benchmarks.studies.masking texts.txt                     # the demo's MiniLM, 3 epochs, 3 seeds
    python -m benchmarks.studies.masking texts.txt --model FOLDER --epochs 10 --seeds 3 --texts 5000

A tenth of the lines is held out. Prints one JSON document: figures before training, and for each way of masking those
of every seed with their mean and standard deviation.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, Literal

from compressor.core.checkpoint import Checkpoint
from compressor.core.environment import machine
from compressor.core.errors import UsageError
from compressor.data.dataset import Split, TextDataset, sampled
from compressor.data.demo_model import demo_teacher
from compressor.data.reader import carve_validation, read_sentences
from compressor.models import resolve
from compressor.pretrain.config import PretrainConfig
from compressor.pretrain.stage import Pretrain
from compressor.stage import Context

Masking = Literal["dynamic", "static"]
FIGURES = ("masked_accuracy", "pseudo_perplexity")


def study(
    source: Checkpoint, file: Path, *, epochs: float, lr: float, seeds: int, texts: int | None = None, threads: int = 1
) -> dict[str, Any]:
    """Pretrains a model with both ways of masking.

    Args:
        source: the model.
        file: one text a line.
        epochs: of each run.
        lr: peak learning rate.
        seeds: runs of each way.
        texts: most lines that are used, drawn at random.
        threads: of each run.
    """
    if seeds < 1:
        raise UsageError(f"--seeds {seeds}; expected at least one run", remedy="leave it out for three")
    lines = read_sentences(file)
    split = Split(lines, (0,) * len(lines))
    train, held_out = carve_validation(split if texts is None else sampled(split, texts), stratify=False)
    data = TextDataset(("none",), train, held_out, held_out)
    found: dict[str, Any] = {"texts": len(train), "held_out_texts": len(held_out), "epochs": epochs, "lr": lr}
    for masking in ("dynamic", "static"):
        runs = [_run(source, data, masking, epochs, lr, seed, threads) for seed in range(seeds)]
        found.setdefault("before", [run["before"] for run in runs])
        after = [run["after"] for run in runs]
        found[masking] = {"runs": after, **{name: _spread([run[name] for run in after]) for name in FIGURES}}
    return found


def _run(
    source: Checkpoint, data: TextDataset, masking: Masking, epochs: float, lr: float, seed: int, threads: int
) -> dict[str, Any]:
    stage = Pretrain(PretrainConfig(masking=masking, epochs=epochs, lr=lr))
    with tempfile.TemporaryDirectory(prefix="compressor-masking-") as name:
        output = Path(name) / "output"
        output.mkdir()
        context = Context(
            teacher=source,
            current=source,
            data=data,
            seed=seed,
            threads=threads,
            workdir=Path(name),
            scratch=Path(name),
        )
        stage.requires(context)
        held_out: dict[str, Any] = stage.run(context, output)["held_out"]
    return held_out


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else 0.0}


def main() -> None:
    """Runs the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="one text a line")
    parser.add_argument("--model", help="a folder or hub id; default the demo's MiniLM")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--texts", type=int, help="most lines that are used")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    source = Checkpoint.open(demo_teacher()) if arguments.model is None else resolve(arguments.model)
    found = study(
        source, arguments.file, epochs=arguments.epochs, lr=arguments.lr, seeds=arguments.seeds, texts=arguments.texts,
        threads=arguments.threads,
    )  # fmt: skip
    print(json.dumps({"machine": machine(), "model": source.path.name, **found}, indent=2))


if __name__ == "__main__":
    main()
