"""Labelled text with one fixed label order."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from compressor.core.errors import DataError
from compressor.core.hashing import sha256_json
from compressor.core.schema import Text
from compressor.core.task import Task


@dataclass(frozen=True)
class Split:
    """Texts and, where known, their labels (same length)."""

    texts: Sequence[Text]
    """In memory, or, of training data, in a file (:mod:`compressor.data.stored`)."""
    labels: tuple[Any, ...]
    """What is true of each text, by task: a label's index; for several labels 0 or 1 a label; a number; a tag's index a
    word (words are parted by single spaces); for a question, every accepted answer; for a pair, its similarity."""

    def __len__(self) -> int:
        return len(self.texts)


def sampled(split: Split, count: int, *, seed: int = 0) -> Split:
    """Returns ``count`` examples drawn without replacement, in the split's order; all of them where there are fewer."""
    if len(split) <= count:
        return split
    rows = sorted(random.Random(seed).sample(range(len(split)), count))
    return Split(tuple(split.texts[row] for row in rows), tuple(split.labels[row] for row in rows))


@dataclass(frozen=True)
class TextDataset:
    """Train, validation and test with the label names that index every ``labels`` tuple."""

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    sentences: tuple[Text, ...] = field(default=())
    """Texts for latency measurement; the test texts unless the recipe names others."""
    task: Task = "text-classification"
    """What the labels are."""

    @property
    def splits(self) -> dict[str, Split]:
        """The labelled splits by name: ``train``, ``validation``, ``test``."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def text_columns(self) -> int:
        """1, or 2 for pairs of texts."""
        return 2 if isinstance(self.test.texts[0], tuple) else 1

    @cached_property
    def hash(self) -> str:
        """One hash over all texts, labels and label names."""
        found = hashlib.sha256(sha256_json([self.label_names, self.sentences, self.task]).encode())
        for part in self.splits.values():
            found.update(f"{len(part)}\n".encode())
            for row in zip(part.texts, part.labels, strict=True):
                found.update(json.dumps(row).encode())
        return found.hexdigest()

    def with_label_order(self, names: tuple[str, ...]) -> TextDataset:
        """Returns the same data with its labels numbered in the order of ``names``, which are the same names.

        Raises:
            DataError: ``names`` are other labels than the data's.
        """
        if sorted(names) != sorted(self.label_names):
            raise DataError(
                f"the data has the labels {', '.join(self.label_names[:6])}; expected {', '.join(names[:6])}",
                remedy="use data with the model's labels",
            )
        position = [names.index(name) for name in self.label_names]

        def renumbered(split: Split) -> Split:
            return Split(split.texts, tuple(position[label] for label in split.labels))

        return TextDataset(
            names, renumbered(self.train), renumbered(self.validation), renumbered(self.test), self.sentences
        )
