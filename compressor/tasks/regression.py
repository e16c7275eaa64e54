"""A number a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compressor.core.errors import ModelError
from compressor.core.schema import Text
from compressor.core.task import LOGITS, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer, ValueAnswer, rounded
from compressor.tasks.base import Outputs, TaskHead, TextOutputs
from compressor.tasks.metrics import Evaluation, correlations
from compressor.text import SentenceEncoder


class Regression(TaskHead):
    """Judged by the order it puts texts in (Spearman), which no scale or offset changes; Pearson and error beside."""

    task: ClassVar[Task] = "regression"
    agrees_on: ClassVar[str] = "same order of each two texts"
    measures: ClassVar[str] = "Spearman correlation"

    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation:
        values, truth = found.logits, np.asarray(split.labels, dtype=np.float64)
        if values.shape != (len(truth), 1):
            raise ModelError(
                f"found outputs of shape {values.shape} for {len(truth)} examples; expected one number each",
                remedy="evaluate a model with a head of one output",
            )
        pearson, spearman = correlations(values[:, 0].astype(np.float64), truth)
        error = float(np.sqrt(np.square(values[:, 0] - truth).mean()))
        return Evaluation(
            metric="spearman",
            value=spearman,
            examples=len(truth),
            details={"pearson": pearson, "root_mean_squared_error": error},
            truncated=found.truncated,
        )

    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns whether each two texts of the batch come in the same order; 1 where there is but one text."""
        ours, theirs = found[LOGITS][:, 0], reference[LOGITS][:, 0]
        first, second = np.triu_indices(len(ours), k=1)
        same = np.sign(ours[first] - ours[second]) == np.sign(theirs[first] - theirs[second])
        return np.asarray(same if len(same) else [True], dtype=np.float64)

    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns each text's number."""
        return [ValueAnswer(text=text, value=rounded(row[0])) for text, row in zip(texts, found.logits, strict=True)]
