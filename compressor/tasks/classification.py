"""One label a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compressor.core.errors import ModelError
from compressor.core.schema import Text
from compressor.core.task import LOGITS, Activation, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer, LabelAnswer, rounded
from compressor.tasks.base import Outputs, TaskHead, TextOutputs, check_rows
from compressor.tasks.metrics import Evaluation, expected_calibration_error, macro_f1, softmax
from compressor.text import SentenceEncoder


class Classification(TaskHead):
    """Accuracy with its exact count, macro F1, calibration error."""

    task: ClassVar[Task] = "text-classification"
    activation: ClassVar[Activation] = "softmax"
    agrees_on: ClassVar[str] = "same label"
    measures: ClassVar[str] = "accuracy"

    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation:
        return evaluate_logits(found.logits, split.labels, truncated=found.truncated)

    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns whether each text gets the same label."""
        return np.asarray(found[LOGITS].argmax(axis=-1) == reference[LOGITS].argmax(axis=-1), dtype=np.float64)

    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns the label and all probabilities of each text."""
        return [
            LabelAnswer(
                text=text,
                label=labels[int(row.argmax())],
                scores={name: rounded(score) for name, score in zip(labels, row, strict=True)},
            )
            for text, row in zip(texts, softmax(found.logits), strict=True)
        ]


def evaluate_logits(logits: np.ndarray, labels: Sequence[int], *, truncated: int = 0) -> Evaluation:
    """Computes the metrics of given answers.

    Args:
        logits: float array of shape (examples, labels).
        labels: the true label indices, one an example.
        truncated: how many sentences were cut, for the record.

    Raises:
        DataError: no examples.
        ModelError: logits that are not finite, or not one row an example.
    """
    truth = np.asarray(labels, dtype=np.int64)
    check_rows({LOGITS: list(logits)}, len(truth))
    if logits.ndim != 2 or len(logits) != len(truth) or truth.max() >= logits.shape[1]:
        raise ModelError(
            f"found logits of shape {logits.shape} for {len(truth)} examples with labels up to {truth.max()}",
            remedy="evaluate on data with the labels the model was trained for",
        )
    answers = logits.argmax(axis=1)
    correct = int((answers == truth).sum())
    return Evaluation(
        value=correct / len(truth),
        examples=len(truth),
        correct=correct,
        majority_class=float(np.bincount(truth).max() / len(truth)),
        macro_f1=macro_f1(answers, truth),
        expected_calibration_error=expected_calibration_error(logits, truth),
        truncated=truncated,
    )
