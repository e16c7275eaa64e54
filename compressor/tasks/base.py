"""What every task can say of a model's outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from compressor.core.errors import DataError, ModelError
from compressor.core.schema import Text
from compressor.core.task import LOGITS, Activation, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer
from compressor.tasks.metrics import Evaluation
from compressor.text import SentenceEncoder

Outputs = Mapping[str, np.ndarray]
"""Canonical output name to a float32 array of shape (batch, …)."""


@dataclass(frozen=True)
class TextOutputs:
    """What a model gave for some texts."""

    rows: Mapping[str, Sequence[np.ndarray]]
    """Canonical output name to one array a text, in order; an output with a value a token has no padding."""
    truncated: int = 0
    """Texts that were longer than the model takes."""

    @property
    def logits(self) -> np.ndarray:
        """The logits as one array of shape (texts, labels), where every text has one row of them."""
        return np.stack(self.rows[LOGITS])

    def __len__(self) -> int:
        return len(next(iter(self.rows.values())))


class TaskHead(ABC):
    """One task. Stateless."""

    task: ClassVar[Task]
    activation: ClassVar[Activation] = "identity"
    agrees_on: ClassVar[str]
    """What two models must have in common to agree, for ``parity.json`` and the card."""
    measures: ClassVar[str]
    """What the value of an evaluation is, for a person."""

    def texts(self, split: Split) -> tuple[Text, ...]:
        """Returns the texts that a model is run on to be evaluated on ``split``."""
        return tuple(split.texts)

    def evaluate(self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]) -> Evaluation:
        """Returns the metrics of a model's outputs for :meth:`texts` of a split.

        Args:
            found: the outputs.
            split: texts with what is true of them.
            encoder: the model's tokenizer.
            labels: label names in the order of the logits.

        Raises:
            DataError: no examples.
            ModelError: outputs that are not finite, or do not fit the labels.
        """
        check_rows(found.rows, len(split))
        return self._evaluate(found, split, encoder, labels)

    @abstractmethod
    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation: ...

    @abstractmethod
    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns how far each answer of two models is the same, 0 to 1.

        Args:
            found: outputs of one batch.
            reference: the other model's outputs of the same batch.
            mask: 1 for text, 0 for padding; shape (batch, tokens).
        """

    @abstractmethod
    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns what a model says of each text, as a person reads it."""

    def check_text(self, text: Text) -> str | None:
        """Returns why a text cannot be asked, or None."""
        return None


def check_rows(rows: Mapping[str, Sequence[np.ndarray]], examples: int) -> None:
    """Proves that there is something to evaluate.

    Raises:
        DataError: no examples.
        ModelError: an output that is not finite.
    """
    if not examples:
        raise DataError("there are no examples to evaluate", remedy="name a split that holds labelled rows")
    for name, arrays in rows.items():
        if bad := sum(not np.isfinite(row).all() for row in arrays):
            raise ModelError(
                f"the {name} of {bad} of {len(arrays)} examples are not finite", remedy="retrain or reconvert"
            )
