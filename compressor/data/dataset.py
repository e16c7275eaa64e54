"""Labelled text in memory, with one fixed label order."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from compressor.core.hashing import sha256_json
from compressor.core.schema import Text


@dataclass(frozen=True)
class Split:
    """Texts and, where known, their label indices (same length)."""

    texts: tuple[Text, ...]
    labels: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class TextDataset:
    """Train, validation and test with the label names that index every ``labels`` tuple."""

    label_names: tuple[str, ...]
    train: Split
    validation: Split
    test: Split
    sentences: tuple[Text, ...] = field(default=())
    """Texts for latency measurement; the test texts unless the recipe names others."""

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
        splits = [(part.texts, part.labels) for part in (self.train, self.validation, self.test)]
        return sha256_json([self.label_names, splits, self.sentences])
