"""The piece of a context that answers a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from compressor.core.schema import Text
from compressor.core.task import END_LOGITS, START_LOGITS, Activation, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer, SpanAnswer, rounded
from compressor.tasks.base import Outputs, TaskHead, TextOutputs
from compressor.tasks.metrics import Evaluation, answer_scores, softmax
from compressor.text import SentenceEncoder, Spans

_MOST_TOKENS = 30
"""Longest answer, as in the original evaluation of BERT on SQuAD."""


class QuestionAnswering(TaskHead):
    """Start and end of the best span within the context (Devlin et al. 2019, section 4.2).

    Judged by F1 over the answer's words; where some questions of the data have no answer, a span must beat the score of
    the first token to count as one (section 4.3).
    """

    task: ClassVar[Task] = "question-answering"
    activation: ClassVar[Activation] = "softmax"
    agrees_on: ClassVar[str] = "same span"
    measures: ClassVar[str] = "answer F1"

    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation:
        may_be_none = any(not accepted for accepted in split.labels)
        answers = self._spans(found, split.texts, encoder, may_be_none=may_be_none)
        scores = np.array([answer_scores(a.answer, gold) for a, gold in zip(answers, split.labels, strict=True)])
        unanswerable = sum(not accepted for accepted in split.labels) / len(split)
        return Evaluation(
            metric="f1",
            value=float(scores[:, 1].mean()),
            examples=len(split),
            correct=int(scores[:, 0].sum()),
            majority_class=unanswerable,
            details={"exact_match": float(scores[:, 0].mean())},
            truncated=found.truncated,
        )

    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns whether each text gets the same most likely first and last token, padding apart."""
        same = np.ones(len(mask), dtype=bool)
        for name in (START_LOGITS, END_LOGITS):
            ours, theirs = (np.where(mask > 0, side[name], -np.inf).argmax(axis=-1) for side in (found, reference))
            same &= ours == theirs
        return same.astype(np.float64)

    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns the best span of each (question, context)."""
        return list(self._spans(found, texts, encoder, may_be_none=False))

    def check_text(self, text: Text) -> str | None:
        """Returns why a single text cannot be asked."""
        return None if isinstance(text, tuple) else "one text was given; expected a question and its context"

    @staticmethod
    def _spans(
        found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, *, may_be_none: bool
    ) -> list[SpanAnswer]:
        rows = zip(texts, found.rows[START_LOGITS], found.rows[END_LOGITS], encoder.spans(texts), strict=True)
        return [_best_span(text, start, end, spans, may_be_none=may_be_none) for text, start, end, spans in rows]


def _best_span(text: Text, start: np.ndarray, end: np.ndarray, spans: Spans, *, may_be_none: bool) -> SpanAnswer:
    in_context = np.array([source == 1 for source in spans.sources])
    legal = np.triu(np.outer(in_context, in_context)) & ~np.triu(np.ones((len(start), len(start)), bool), _MOST_TOKENS)
    scores = np.where(legal, start[:, None] + end[None, :], -np.inf)
    first, last = np.unravel_index(int(scores.argmax()), scores.shape)
    probabilities = softmax(np.stack([start, end]).astype(np.float64))
    if not legal.any() or (may_be_none and start[0] + end[0] > scores[first, last]):
        none = float(probabilities[0, 0] * probabilities[1, 0])
        return SpanAnswer(text=text, answer="", start=0, end=0, score=rounded(none))
    begin, stop = spans.offsets[first][0], spans.offsets[last][1]
    piece = text[1][begin:stop]
    begin += len(piece) - len(piece.lstrip())
    score = float(probabilities[0, first] * probabilities[1, last])
    return SpanAnswer(text=text, answer=piece.strip(), start=begin, end=stop, score=rounded(score))
