"""A learnable toy task in the tiny tokenizer's words, and contexts for running one stage on it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from compressor.core.checkpoint import Checkpoint
from compressor.data.dataset import Split, TextDataset
from compressor.stage import Context
from tests.models import LABELS

_FILL = ("the", "my", "order", "card", "account", "now", "please", "i", "want", "to", "it")
_KEYS = {"cancel": "cancel", "refund": "refund", "track": "where"}


def tiny_dataset(*, train: int = 96, rest: int = 30, seed: int = 0) -> TextDataset:
    """One key word per class among random fill words of varying number."""
    rng = random.Random(seed)

    def split(size: int) -> Split:
        rows = []
        for index in range(size):
            words = rng.choices(_FILL, k=rng.randrange(1, 9))
            words.insert(rng.randrange(len(words) + 1), _KEYS[LABELS[index % 3]])
            rows.append((" ".join(words), index % 3))
        return Split(tuple(text for text, _ in rows), tuple(label for _, label in rows))

    data = TextDataset(LABELS, split(train), split(rest), split(rest))
    return replace(data, sentences=data.test.texts)


def context(folder: Path, current: Checkpoint, **more: Any) -> Context:
    """A context with its own scratch folder below ``folder``."""
    scratch = folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    values = {"teacher": current, "current": current, "data": tiny_dataset(), "workdir": folder, "scratch": scratch}
    return Context(**{**values, **more})


def run_stage(stage: Any, where: Context, output: Path) -> dict[str, Any]:
    """requires → run → ensures, as the pipeline does."""
    output.mkdir(parents=True)
    stage.requires(where)
    facts: dict[str, Any] = stage.run(where, output)
    stage.ensures(where, output)
    return facts
