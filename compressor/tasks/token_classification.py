"""A tag a word: names, places, parts of speech."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from compressor.core.errors import ModelError
from compressor.core.schema import Text
from compressor.core.task import LOGITS, Activation, Task
from compressor.data.dataset import Split
from compressor.tasks.answers import Answer, EntitiesAnswer, Entity, rounded
from compressor.tasks.base import Outputs, TaskHead, TextOutputs
from compressor.tasks.metrics import Evaluation, entities, softmax, span_f1
from compressor.text import SentenceEncoder, Spans

OUTSIDE = "O"


class TokenClassification(TaskHead):
    """A word's tag is that of its first token (Devlin et al. 2019, section 5.3).

    Judged by F1 over whole entities where the labels are BIO, BIOES or BILOU tags, else by the share of right tags.
    A word beyond the model's longest text counts as tagged ``O``.
    """

    task: ClassVar[Task] = "token-classification"
    activation: ClassVar[Activation] = "softmax"
    agrees_on: ClassVar[str] = "same tag of each real token"
    measures: ClassVar[str] = "tagging score"

    def _evaluate(
        self, found: TextOutputs, split: Split, encoder: SentenceEncoder, labels: Sequence[str]
    ) -> Evaluation:
        spans = encoder.spans(split.texts)
        given: list[list[str]] = []
        truth = [[labels[tag] for tag in tags] for tags in split.labels]
        for text, logits, places in zip(split.texts, found.rows[LOGITS], spans, strict=True):
            if logits.shape[-1] != len(labels):
                raise ModelError(
                    f"found logits of {logits.shape[-1]} labels; expected {len(labels)}", remedy="check config.json"
                )
            given.append(_word_tags(str(text), logits, places, labels))
        pairs = [(ours, true) for a, b in zip(given, truth, strict=True) for ours, true in zip(a, b, strict=True)]
        accuracy = sum(ours == true for ours, true in pairs) / len(pairs)
        if not any(name.startswith("B-") for name in labels):
            counts = Counter(true for _, true in pairs)
            return Evaluation(
                metric="token_accuracy",
                value=accuracy,
                examples=len(split),
                majority_class=max(counts.values()) / len(pairs),
                details={"words": float(len(pairs))},
                truncated=found.truncated,
            )
        return Evaluation(
            metric="entity_f1",
            value=span_f1([entities(tags) for tags in given], [entities(tags) for tags in truth]),
            examples=len(split),
            details={"token_accuracy": accuracy, "words": float(len(pairs))},
            truncated=found.truncated,
        )

    def agreement(self, found: Outputs, reference: Outputs, mask: np.ndarray) -> np.ndarray:
        """Returns whether each real token gets the same tag."""
        same = found[LOGITS].argmax(axis=-1) == reference[LOGITS].argmax(axis=-1)
        return np.asarray(same[mask.astype(bool)], dtype=np.float64)

    def answers(
        self, found: TextOutputs, texts: Sequence[Text], encoder: SentenceEncoder, labels: Sequence[str]
    ) -> list[Answer]:
        """Returns the entities of each text with their places in it; words tagged ``O`` are left out."""
        spans = encoder.spans(texts)
        return [
            EntitiesAnswer(text=text, entities=tuple(_entities(str(text), logits, places, labels)))
            for text, logits, places in zip(texts, found.rows[LOGITS], spans, strict=True)
        ]

    def check_text(self, text: Text) -> str | None:
        """Returns why a pair cannot be tagged."""
        return "a pair was given; a single text is tagged" if isinstance(text, tuple) else None


def _word_tags(text: str, logits: np.ndarray, spans: Spans, labels: Sequence[str]) -> list[str]:
    """Returns one tag for each word of a text whose words are parted by single spaces.

    A token belongs to the word that holds its last character: some tokenizers count the space before a word to it.
    """
    words = text.split(" ")
    word_at = [index for index, word in enumerate(words) for _ in range(len(word) + 1)]
    outside = OUTSIDE if OUTSIDE in labels else labels[0]
    tags = [outside] * len(words)
    tagged: set[int] = set()
    for (start, end), source, row in zip(spans.offsets, spans.sources, logits, strict=True):
        if source is None or end <= start:
            continue
        word = word_at[end - 1]
        if word not in tagged:
            tags[word] = labels[int(row.argmax())]
            tagged.add(word)
    return tags


def _entities(text: str, logits: np.ndarray, spans: Spans, labels: Sequence[str]) -> Iterator[Entity]:
    words: list[tuple[int, int, str, float]] = []
    seen: int | None = None
    for (start, end), word, row in zip(spans.offsets, spans.words, softmax(logits), strict=True):
        if word is None:
            continue
        if word == seen:
            words[-1] = (words[-1][0], end, *words[-1][2:])
        else:
            words.append((start, end, labels[int(row.argmax())], float(row.max())))
        seen = word
    tags = [tag for *_, tag, _ in words]
    bio = any(name.startswith("B-") for name in labels)
    pieces = entities(tags) if bio else {(tag, i, i + 1) for i, tag in enumerate(tags) if tag != OUTSIDE}
    for label, first, last in sorted(pieces, key=lambda piece: piece[1]):
        start, end = words[first][0], words[last - 1][1]
        start += len(text[start:end]) - len(text[start:end].lstrip())
        score = float(np.mean([word[3] for word in words[first:last]]))
        yield Entity(label=label, text=text[start:end], start=start, end=end, score=rounded(score))
