"""What a model says of a text, as a person reads it; one record a kind of answer."""

from __future__ import annotations

from compressor.core.schema import Record, Text


class LabelAnswer(Record):
    """The one label of a text."""

    text: Text
    label: str
    scores: dict[str, float]
    """Label to probability."""

    @property
    def shown(self) -> tuple[str, float | None]:
        """The answer and its score, for a table."""
        return self.label, self.scores[self.label]


class LabelsAnswer(Record):
    """All labels that are more likely than not."""

    text: Text
    labels: tuple[str, ...]
    scores: dict[str, float]
    """Label to its own probability."""

    @property
    def shown(self) -> tuple[str, float | None]:
        """The answer and the score of its least sure label."""
        return ", ".join(self.labels) or "none", min((self.scores[name] for name in self.labels), default=None)


class ValueAnswer(Record):
    """A number."""

    text: Text
    value: float

    @property
    def shown(self) -> tuple[str, float | None]:
        """The number, which has no score."""
        return f"{self.value:.4f}", None


class Entity(Record):
    """A piece of the text with its label."""

    label: str
    text: str
    start: int
    end: int
    """Characters ``start`` to ``end - 1`` of the text."""
    score: float
    """Mean probability over its words."""


class EntitiesAnswer(Record):
    """The labelled pieces of a text."""

    text: Text
    entities: tuple[Entity, ...]

    @property
    def shown(self) -> tuple[str, float | None]:
        """The entities with their places, and the score of the least sure."""
        pieces = [f"{item.label}: {item.text} [{item.start}:{item.end}]" for item in self.entities]
        return "; ".join(pieces) or "none", min((item.score for item in self.entities), default=None)


class SpanAnswer(Record):
    """The piece of a context that answers a question."""

    text: Text
    answer: str
    start: int
    end: int
    """Characters ``start`` to ``end - 1`` of the context."""
    score: float
    """Probability of its first token times that of its last."""

    @property
    def shown(self) -> tuple[str, float | None]:
        """The piece and its score."""
        return self.answer or "no answer", self.score


class EmbeddingAnswer(Record):
    """The vector of a text."""

    text: Text
    embedding: tuple[float, ...]

    @property
    def shown(self) -> tuple[str, float | None]:
        """The width and the first numbers."""
        return f"{len(self.embedding)} numbers: " + " ".join(f"{x:+.3f}" for x in self.embedding[:4]) + " …", None


Answer = LabelAnswer | LabelsAnswer | ValueAnswer | EntitiesAnswer | SpanAnswer | EmbeddingAnswer


def rounded(value: float) -> float:
    """Returns a score with the six digits that are shown."""
    return round(float(value), 6)
