"""The record of how good a model is, and the metrics in it, each from plain arrays."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from compressor.core.schema import Record

Metric = Literal["accuracy", "micro_f1", "spearman", "entity_f1", "token_accuracy", "f1"]
_ECE_BINS = 15
_AS_BIO = {"S": "B", "U": "B", "E": "I", "L": "I"}
"""What the tags of single words (S, U) and of last words (E, L) are where only the first word is marked."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")


class Evaluation(Record):
    """Metrics of one model on one split; fractions, not per cent."""

    metric: Metric = "accuracy"
    """What ``value`` is: what a limit on the accuracy means for the task."""
    value: float = Field(ge=-1, le=1)
    examples: int = Field(gt=0)
    correct: int | None = Field(default=None, ge=0)
    """Examples that are answered exactly, where an answer is right or wrong."""
    majority_class: float = 0.0
    """Score of the best answer that never looks at the text (for accuracy: the most frequent label's share): the floor
    a model must beat."""
    macro_f1: float | None = None
    expected_calibration_error: float | None = None
    details: dict[str, float] = Field(default_factory=dict)
    """The task's further metrics by name."""
    truncated: int = 0
    """Sentences that were longer than the model takes."""
    simulated: bool = False
    """True where the vendor's simulator answered for the device."""
    sampled_from: int | None = None
    """Examples there were, where only a seeded sample of them was run."""


def macro_f1(answers: np.ndarray, truth: np.ndarray) -> float:
    """Returns the mean F1 over the classes that occur in either array of label indices, shape (examples,)."""
    scores = []
    for label in np.union1d(answers, truth):
        hits = int(((answers == label) & (truth == label)).sum())
        scores.append(2 * hits / int((answers == label).sum() + (truth == label).sum()))
    return float(np.mean(scores))


def micro_f1(answers: np.ndarray, truth: np.ndarray) -> float:
    """Returns F1 over all labels together, for boolean arrays of shape (examples, labels); 1 where both are empty."""
    total = int(answers.sum() + truth.sum())
    return 2 * int((answers & truth).sum()) / total if total else 1.0


def best_constant_micro_f1(truth: np.ndarray) -> float:
    """Returns the micro F1 of always answering the same labels, the most frequent ones, however many pay best."""
    counts = np.sort(truth.sum(axis=0))[::-1]
    sizes = np.arange(1, len(counts) + 1)
    return float((2 * counts.cumsum() / (sizes * len(truth) + counts.sum())).max())


def expected_calibration_error(logits: np.ndarray, truth: np.ndarray) -> float:
    """Returns the mean gap between confidence and accuracy over 15 equal bins (Guo et al. 2017, equation 3)."""
    probabilities = softmax(logits.astype(np.float64))
    confidence = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == truth
    bins = np.minimum((confidence * _ECE_BINS).astype(np.int64), _ECE_BINS - 1)
    gaps = [abs(hit[bins == index].sum() - confidence[bins == index].sum()) for index in np.unique(bins)]
    return float(np.sum(gaps) / len(truth))


def correlations(found: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Returns Pearson's and Spearman's correlation of two arrays (examples,); 0 where one of them never changes."""
    from scipy.stats import pearsonr, spearmanr

    if len(found) < 2 or np.ptp(found) == 0 or np.ptp(truth) == 0:
        return 0.0, 0.0
    return float(pearsonr(found, truth).statistic), float(spearmanr(found, truth).statistic)


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Returns (label, first word, word after the last) of the entities in BIO, BIOES or BILOU tags.

    An ``I-`` that continues nothing begins an entity, as in the CoNLL-2000 evaluation.
    """
    found, label, start = set(), "", 0
    for position, tag in enumerate((*tags, "O")):
        prefix, _, name = tag.partition("-")
        prefix = _AS_BIO.get(prefix, prefix)
        if label and (prefix != "I" or name != label):
            found.add((label, start, position))
            label = ""
        if prefix in ("B", "I") and not label:
            label, start = name, position
    return found


def span_f1(found: Sequence[set[tuple[str, int, int]]], truth: Sequence[set[tuple[str, int, int]]]) -> float:
    """Returns the micro F1 over whole entities of all sentences; 1 where there are none on either side."""
    total = sum(map(len, found)) + sum(map(len, truth))
    hits = sum(len(ours & theirs) for ours, theirs in zip(found, truth, strict=True))
    return 2 * hits / total if total else 1.0


def answer_scores(found: str, accepted: Sequence[str]) -> tuple[float, float]:
    """Returns exact match and F1 over words, the best over all accepted answers (Rajpurkar et al. 2016, section 6.1).

    Case, punctuation and articles do not count. No accepted answer means that none is right.
    """
    ours = _normal(found)
    pairs = [_answer_score(ours, _normal(answer)) for answer in accepted or ("",)]
    return max(exact for exact, _ in pairs), max(f1 for _, f1 in pairs)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns probabilities over the last axis."""
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns a probability for each logit by itself."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)))


def _normal(text: str) -> list[str]:
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return _ARTICLES.sub(" ", plain).split()


def _answer_score(ours: list[str], theirs: list[str]) -> tuple[float, float]:
    exact = float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return exact, 2 * common / (len(ours) + len(theirs)) if common else exact
