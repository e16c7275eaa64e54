"""``evaluate``, ``predict`` and ``compare``: what a model or an artifact answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compressor.app.inputs import default_threads, find_model
from compressor.app.inspection import Inspection, inspect
from compressor.core.artifact import MANIFEST, Artifact
from compressor.core.errors import UsageError
from compressor.core.schema import Record, Text
from compressor.data.batches import encode_split
from compressor.data.dataset import Split, sampled
from compressor.data.reader import read_split
from compressor.evaluation import SIMULATED_EXAMPLES, Evaluation, evaluate_logits, predict_logits
from compressor.models import load_compressed
from compressor.train.runtime import torch_threads
from export.text_predictor import TextLogits, TextPredictor, probabilities

MAX_TOKENS = 512
"""A model folder is asked at up to this many tokens, or its own limit if that is less."""


class Prediction(Record):
    """One answer."""

    text: str
    label: str
    scores: dict[str, float]
    """Label to probability."""


class Flip(Record):
    """An example that two models answer differently."""

    text: str
    expected: str
    left: str
    right: str


class Comparison(Record):
    """Two files side by side."""

    left: Inspection
    right: Inspection
    left_evaluation: Evaluation | None = None
    right_evaluation: Evaluation | None = None
    flips: tuple[Flip, ...] = ()


def evaluate(path: str | Path, data: Path, *, examples: int | None = None, threads: int | None = None) -> Evaluation:
    """Returns the task metrics of an artifact (through its own tokenizer and runtime) or of a model folder.

    An artifact for an NPU runs in the vendor's simulator, one process a thread. What it answered is kept in the user's
    cache folder, so an evaluation that was ended goes on where it was.

    Args:
        path: an artifact or model folder, or a hub id.
        data: labelled text with the model's label names.
        examples: size of a seeded sample; default: all of them, or SIMULATED_EXAMPLES in a simulator.
        threads: threads of the runtime; default: all cores.
    """
    subject = _Subject.open(path, threads)
    split = read_split(data, subject.labels)
    drawn = subject.sample(split, examples)
    found = subject.logits(drawn.texts)
    sampled_from = len(split) if len(drawn) < len(split) else None
    return subject.judged(found, drawn).model_copy(update={"sampled_from": sampled_from})


def predict(path: str | Path, texts: Sequence[str], *, threads: int | None = None) -> list[Prediction]:
    """Returns the answers of an artifact or model to some texts."""
    if not texts:
        raise UsageError("there are no texts to answer", remedy="add one or more texts")
    subject = _Subject.open(path, threads)
    scores = probabilities(subject.logits(tuple(texts)).logits, subject.activation)
    return [
        Prediction(
            text=text,
            label=subject.labels[int(np.argmax(row))],
            scores={name: round(float(score), 6) for name, score in zip(subject.labels, row, strict=True)},
        )
        for text, row in zip(texts, scores, strict=True)
    ]


def compare(left: str | Path, right: str | Path, data: Path | None = None, *, threads: int | None = None) -> Comparison:
    """Returns what two files hold and, with labelled data, how they do and where they differ."""
    comparison = Comparison(left=inspect(left), right=inspect(right))
    if data is None:
        return comparison
    one, other = _Subject.open(left, threads), _Subject.open(right, threads)
    if one.labels != other.labels:
        raise UsageError(
            f"the labels differ: {', '.join(one.labels)} against {', '.join(other.labels)}",
            remedy="compare models of the same task",
        )
    split = read_split(data, one.labels)
    if one.simulated or other.simulated:
        split = sampled(split, SIMULATED_EXAMPLES)
    found, others = one.logits(split.texts), other.logits(split.texts)
    answers, other_answers = found.logits.argmax(axis=1), others.logits.argmax(axis=1)
    flips = tuple(
        Flip(
            text=_shown(split.texts[row]),
            expected=one.labels[split.labels[row]],
            left=one.labels[int(answers[row])],
            right=one.labels[int(other_answers[row])],
        )
        for row in np.flatnonzero(answers != other_answers)
    )
    return comparison.model_copy(
        update={
            "left_evaluation": one.judged(found, split),
            "right_evaluation": other.judged(others, split),
            "flips": flips,
        }
    )


class _Subject:
    """An artifact or a checkpoint, asked the same way."""

    def __init__(self, path: Path | str, threads: int) -> None:
        self.activation = "softmax"
        self.simulated = False
        if (Path(path) / MANIFEST).is_file():
            artifact = Artifact.load(Path(path))
            self.labels = artifact.labels
            self.activation = artifact.io.activation
            self.simulated = artifact.manifest.simulated
            self._run = TextPredictor.load(artifact, threads=threads).logits
            return
        checkpoint = find_model(path)
        self.labels = checkpoint.labels

        def run(texts: Sequence[Text]) -> TextLogits:
            split = Split(tuple(texts), (0,) * len(texts))
            with torch_threads(threads):
                data = encode_split(checkpoint, split, max_tokens=MAX_TOKENS)
                return TextLogits(predict_logits(load_compressed(checkpoint.path), data), data.truncated)

        self._run = run

    @classmethod
    def open(cls, path: Path | str, threads: int | None) -> _Subject:
        return cls(path, threads or default_threads())

    def logits(self, texts: Sequence[Text]) -> TextLogits:
        return self._run(texts)

    def sample(self, split: Split, examples: int | None) -> Split:
        count = examples or (SIMULATED_EXAMPLES if self.simulated else len(split))
        return sampled(split, count)

    def judged(self, found: TextLogits, split: Split) -> Evaluation:
        result = evaluate_logits(found.logits, split.labels, truncated=found.truncated)
        return result.model_copy(update={"simulated": self.simulated})


def _shown(text: Text) -> str:
    return " | ".join(text) if isinstance(text, tuple) else text
