"""A vector a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compressor.core.schema import Text
from compressor.core.task import EMBEDDING, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer, EmbeddingAnswer, rounded
from compressor.tasks.base import Outputs, TaskHead, TextOutputs
from compressor.tasks.metrics import Evaluation, correlations
from compressor.text import SentenceEncoder


class SentenceEmbedding(TaskHead):
    """Judged on pairs of texts with a score of how alike they are: Spearman of their cosines with the scores."""

    task: ClassVar[Task] = "sentence-embedding"
    agrees_on: ClassVar[str] = "cosine similarity"
    measures: ClassVar[str] = "Spearman correlation"

    def texts(self, split: Split) -> tuple[Text, ...]:
        """Returns both texts of every pair one after the other: each is embedded by itself."""
        return tuple(text for pair in split.texts for text in pair)

    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation:
        vectors = np.stack(found.rows[EMBEDDING]).astype(np.float64)
        pearson, spearman = correlations(cosines(vectors[::2], vectors[1::2]), np.asarray(split.labels, np.float64))
        return Evaluation(
            metric="spearman",
            value=spearman,
            examples=len(split),
            details={"pearson": pearson},
            truncated=found.truncated,
        )

    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns the cosine between the two models' vectors of each text."""
        return cosines(found[EMBEDDING].astype(np.float64), reference[EMBEDDING].astype(np.float64))

    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns each text's vector."""
        return [
            EmbeddingAnswer(text=text, embedding=tuple(map(rounded, row)))
            for text, row in zip(texts, found.rows[EMBEDDING], strict=True)
        ]

    def check_text(self, text: Text) -> str | None:
        """Returns why a pair cannot be embedded."""
        return "a pair was given; a text is embedded by itself" if isinstance(text, tuple) else None


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the cosine of each two rows of arrays (texts, width)."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray((left * right).sum(axis=1) / np.maximum(lengths, np.finfo(np.float64).tiny))
