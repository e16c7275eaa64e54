"""Any number of labels a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compressor.core.schema import Text
from compressor.core.task import LOGITS, Activation, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer, LabelsAnswer, rounded
from compressor.tasks.base import Outputs, TaskHead, TextOutputs
from compressor.tasks.metrics import Evaluation, best_constant_micro_f1, micro_f1, sigmoid
from compressor.text import SentenceEncoder


class MultiLabel(TaskHead):
    """A label holds where its own logit is positive: a probability above one half."""

    task: ClassVar[Task] = "multi-label-classification"
    activation: ClassVar[Activation] = "sigmoid"
    agrees_on: ClassVar[str] = "same set of labels"
    measures: ClassVar[str] = "micro F1"

    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation:
        answers, truth = found.logits > 0, np.asarray(split.labels) > 0
        exact = int((answers == truth).all(axis=1).sum())
        return Evaluation(
            metric="micro_f1",
            value=micro_f1(answers, truth),
            examples=len(truth),
            correct=exact,
            majority_class=best_constant_micro_f1(truth),
            details={"exact_match": exact / len(truth)},
            truncated=found.truncated,
        )

    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns whether each text gets the same set of labels."""
        return np.asarray(((found[LOGITS] > 0) == (reference[LOGITS] > 0)).all(axis=-1), dtype=np.float64)

    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns the labels of each text and every label's own probability."""
        return [
            LabelsAnswer(
                text=text,
                labels=tuple(name for name, logit in zip(labels, row, strict=True) if logit > 0),
                scores={name: rounded(score) for name, score in zip(labels, sigmoid(row), strict=True)},
            )
            for text, row in zip(texts, found.logits, strict=True)
        ]
