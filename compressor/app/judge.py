"""``evaluate``, ``predict`` and ``compare``: what a model or an artifact answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compressor.app.inputs import default_threads, find_model
from compressor.app.inspection import Inspection, inspect
from compressor.core.artifact import MANIFEST, Artifact
from compressor.core.errors import UsageError
from compressor.core.schema import Record, Text
from compressor.core.task import Task
from compressor.data.dataset import Split, sampled
from compressor.data.reader import read_split
from compressor.evaluation import SIMULATED_EXAMPLES, Evaluation, run_checkpoint
from compressor.families import adapter_for
from compressor.families.heads import find_task
from compressor.models import load_config
from compressor.tasks import HEADS, TaskHead
from compressor.tasks.answers import Answer
from compressor.tasks.base import TextOutputs
from compressor.text import SentenceEncoder
from export.bare import open_bare
from export.text_predictor import TextPredictor

MAX_TOKENS = 512
"""A model folder is asked at up to this many tokens, or its own limit if that is less."""


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


def evaluate(
    path: str | Path,
    data: Path,
    *,
    examples: int | None = None,
    tokenizer: Path | None = None,
    threads: int | None = None,
) -> Evaluation:
    """Returns the task metrics of an artifact (through its own tokenizer and runtime) or of a model folder.

    An artifact for an NPU runs in the vendor's simulator, one process a thread. What it answered is kept in the user's
    cache folder, so an evaluation that was ended goes on where it was.

    Args:
        path: an artifact or model folder, a hub id, or a bare ``.onnx`` or ``.tflite`` file of any maker.
        data: labelled text with the model's label names, in the columns of its task.
        examples: size of a seeded sample; default: all of them, or SIMULATED_EXAMPLES in a simulator.
        tokenizer: for a bare file, the folder with the tokenizer it was trained with.
        threads: threads of the runtime; default: all cores.
    """
    subject = open_subject(path, threads, tokenizer)
    split = read_split(data, subject.labels, task=subject.task)
    drawn = subject.sample(split, examples)
    sampled_from = len(split) if len(drawn) < len(split) else None
    found = subject.evaluate(drawn, subject.run(subject.head.texts(drawn)))
    return found.model_copy(update={"sampled_from": sampled_from})


def predict(
    path: str | Path, texts: Sequence[Text], *, tokenizer: Path | None = None, threads: int | None = None
) -> list[Answer]:
    """Returns the answers of an artifact or model to some texts; a pair of texts is a tuple of two.

    Raises:
        UsageError: no texts, or single ones where the task takes pairs (or the other way round).
    """
    if not texts:
        raise UsageError("there are no texts to answer", remedy="add one or more texts")
    subject = open_subject(path, threads, tokenizer)
    for text in texts:
        if (problem := subject.head.check_text(text)) is not None:
            raise UsageError(f"{subject.task}: {problem}", remedy="give the second text of each pair with --pair")
    found = subject.run(tuple(texts))
    return subject.head.answers(found, texts, subject.encoder, subject.labels)


def compare(left: str | Path, right: str | Path, data: Path | None = None, *, threads: int | None = None) -> Comparison:
    """Returns what two files hold and, with labelled data, how they do and where they differ."""
    comparison = Comparison(left=inspect(left), right=inspect(right))
    if data is None:
        return comparison
    one, other = open_subject(left, threads), open_subject(right, threads)
    if (one.task, one.labels) != (other.task, other.labels):
        raise UsageError(
            f"the answers differ in kind: {one.task} {', '.join(one.labels)} against {other.task} "
            f"{', '.join(other.labels)}",
            remedy="compare models of the same task",
        )
    split = read_split(data, one.labels, task=one.task)
    if one.simulated or other.simulated:
        split = sampled(split, SIMULATED_EXAMPLES)
    texts = one.head.texts(split)
    found, others = one.run(texts), other.run(texts)
    return comparison.model_copy(
        update={
            "left_evaluation": one.evaluate(split, found),
            "right_evaluation": other.evaluate(split, others),
            "flips": _flips(one, split, texts, found, others),
        }
    )


@dataclass(frozen=True)
class Subject:
    """An artifact, a checkpoint or a bare file, asked the same way."""

    task: Task
    labels: tuple[str, ...]
    encoder: SentenceEncoder
    run: Callable[[Sequence[Text]], TextOutputs]
    simulated: bool = False
    """True where a vendor's simulator answers for the device."""

    @property
    def head(self) -> TaskHead:
        """What its outputs mean."""
        return HEADS[self.task]

    def evaluate(self, split: Split, found: TextOutputs) -> Evaluation:
        """Returns the metrics of its outputs for the texts of a split."""
        result = self.head.evaluate(found, split, self.encoder, self.labels)
        return result.model_copy(update={"simulated": self.simulated})

    def sample(self, split: Split, examples: int | None) -> Split:
        """Returns a seeded sample of ``examples``; all of them where none are named and nothing is simulated."""
        return sampled(split, examples or (SIMULATED_EXAMPLES if self.simulated else len(split)))


def open_subject(path: Path | str, threads: int | None, tokenizer: Path | None = None) -> Subject:
    """Opens whatever can be asked.

    Raises:
        UsageError: a bare model file without the folder of its tokenizer.
        ArtifactError: a damaged artifact, or a bare file with inputs or outputs that are no text classifier's.
        ModelError: neither artifact nor model.
    """
    threads = threads or default_threads()
    place = Path(path)
    if (place / MANIFEST).is_file():
        artifact = Artifact.load(place)
        predictor = TextPredictor.load(artifact, threads=threads)
        simulated = artifact.manifest.simulated
        return Subject(artifact.io.task, artifact.labels, predictor.encoder, predictor.run, simulated)
    if place.is_file():
        file = open_bare(place, tokenizer)
        predictor = file.predictor(threads=threads)
        return Subject(file.io.task, file.labels, predictor.encoder, predictor.run)
    checkpoint = find_model(path)
    task = find_task(checkpoint)
    config = load_config(checkpoint)
    limit = min(MAX_TOKENS, adapter_for(config).max_tokens(config))

    def run(texts: Sequence[Text]) -> TextOutputs:
        return run_checkpoint(checkpoint, texts, task=task, threads=threads, max_tokens=limit)[0]

    return Subject(task, checkpoint.labels, SentenceEncoder.load(checkpoint.path, max_tokens=limit), run)


def _flips(
    subject: Subject, split: Split, texts: Sequence[Text], found: TextOutputs, others: TextOutputs
) -> tuple[Flip, ...]:
    """Returns the texts whose answers differ, where an answer is one label; other tasks differ by their metrics."""
    if subject.task != "text-classification":
        return ()
    labels = subject.labels
    answers, other_answers = found.logits.argmax(axis=1), others.logits.argmax(axis=1)
    return tuple(
        Flip(
            text=_shown(texts[row]),
            expected=labels[split.labels[row]],
            left=labels[int(answers[row])],
            right=labels[int(other_answers[row])],
        )
        for row in map(int, np.flatnonzero(answers != other_answers))
    )


def _shown(text: Text) -> str:
    return " | ".join(text) if isinstance(text, tuple) else text
