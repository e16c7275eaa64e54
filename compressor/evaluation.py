"""How good a classifier is on labelled text: accuracy with its exact count, macro F1, calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, ModelError
from compressor.core.schema import Record
from compressor.data.batches import EncodedSplit, encode_split, sorted_batches
from compressor.data.dataset import Split
from compressor.models import load_compressed
from compressor.train.runtime import torch_threads

_ECE_BINS = 15
SIMULATED_EXAMPLES = 300
"""Sentences of the seeded sample on which a simulated artifact is judged: it answers about one a second."""


class Evaluation(Record):
    """Metrics of one model on one split; fractions, not per cent."""

    metric: Literal["accuracy"] = "accuracy"
    value: float = Field(ge=0, le=1)
    examples: int = Field(gt=0)
    correct: int = Field(ge=0)
    majority_class: float
    """Accuracy of always answering the split's most frequent label: the floor a model must beat."""
    macro_f1: float
    expected_calibration_error: float
    truncated: int = 0
    """Sentences that were longer than the model takes."""
    simulated: bool = False
    """True where the vendor's simulator answered for the device."""
    sampled_from: int | None = None
    """Examples there were, where only a seeded sample of them was run."""


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
    if truth.size == 0:
        raise DataError("there are no examples to evaluate", remedy="name a split that holds labelled rows")
    if logits.ndim != 2 or len(logits) != len(truth) or truth.max() >= logits.shape[1]:
        raise ModelError(
            f"found logits of shape {logits.shape} for {len(truth)} examples with labels up to {truth.max()}",
            remedy="evaluate on data with the labels the model was trained for",
        )
    if not np.isfinite(logits).all():
        bad = int((~np.isfinite(logits)).any(axis=1).sum())
        raise ModelError(f"the logits of {bad} of {len(truth)} examples are not finite", remedy="retrain or reconvert")
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


def macro_f1(answers: np.ndarray, truth: np.ndarray) -> float:
    """Returns the mean F1 over the classes that occur in either array of label indices, shape (examples,)."""
    scores = []
    for label in np.union1d(answers, truth):
        hits = int(((answers == label) & (truth == label)).sum())
        scores.append(2 * hits / int((answers == label).sum() + (truth == label).sum()))
    return float(np.mean(scores))


def expected_calibration_error(logits: np.ndarray, truth: np.ndarray) -> float:
    """Returns the mean gap between confidence and accuracy over 15 equal bins (Guo et al. 2017, equation 3)."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted) / np.exp(shifted).sum(axis=1, keepdims=True)
    confidence = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == truth
    bins = np.minimum((confidence * _ECE_BINS).astype(np.int64), _ECE_BINS - 1)
    gaps = [abs(hit[bins == index].sum() - confidence[bins == index].sum()) for index in np.unique(bins)]
    return float(np.sum(gaps) / len(truth))


def predict_logits(model: nn.Module, data: EncodedSplit, *, batch_size: int = 32) -> np.ndarray:
    """Runs a model in evaluation mode over a split, sentences of like length together.

    Returns:
        float32 logits of shape (examples, labels), in the split's order.
    """
    device = next(model.parameters()).device
    rows: list[np.ndarray] = [np.empty(0)] * len(data)
    model.eval()
    with torch.inference_mode():
        for indices in sorted_batches(data.lengths, batch_size):
            logits = model(**data.inputs(indices, device)).logits.float().cpu().numpy()
            for index, row in zip(indices, logits, strict=True):
                rows[index] = row
    return np.stack(rows)


def evaluate_model(model: nn.Module, data: EncodedSplit, *, batch_size: int = 32) -> Evaluation:
    """Evaluates a model that is already loaded."""
    logits = predict_logits(model, data, batch_size=batch_size)
    return evaluate_logits(logits, data.labels, truncated=data.truncated)


def evaluate_checkpoint(
    checkpoint: Checkpoint, split: Split, *, threads: int, max_tokens: int = 128, batch_size: int = 32
) -> Evaluation:
    """Loads a checkpoint and evaluates it on a split, on the CPU.

    Raises:
        ModelError: the checkpoint does not load, or has fewer labels than the data.
        DataError: an empty split.
    """
    if not len(split):
        raise DataError("there are no examples to evaluate", remedy="name a split that holds labelled rows")
    with torch_threads(threads):
        data = encode_split(checkpoint, split, max_tokens=max_tokens)
        return evaluate_model(load_compressed(checkpoint.path), data, batch_size=batch_size)


def check_reference(evaluation: Evaluation, name: str = "the reference model") -> None:
    """Refuses a reference that is no better than always answering the most frequent label.

    Everything after it (drop in points, parity on labels) would be measured against noise.

    Raises:
        ModelError: the accuracy does not exceed the majority class's share.
    """
    if evaluation.value <= evaluation.majority_class:
        raise ModelError(
            f"{name} scores {evaluation.value:.1%} on {evaluation.examples} examples; expected more than the "
            f"{evaluation.majority_class:.1%} of always answering the most frequent label",
            remedy="fine-tune it on this data first, and check that label names and order are the model's",
        )
