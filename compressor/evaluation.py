"""How good a model is on labelled text, whatever its task; what each task measures is in :mod:`compressor.tasks`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, ModelError
from compressor.core.schema import Text
from compressor.core.task import LOGITS, Task, is_per_token, outputs_of
from compressor.data.batches import EncodedSplit, encode_split, sorted_batches
from compressor.data.dataset import Split
from compressor.families.heads import find_task
from compressor.models import load_compressed
from compressor.tasks import HEADS
from compressor.tasks.base import TextOutputs
from compressor.tasks.classification import evaluate_logits
from compressor.tasks.metrics import Evaluation
from compressor.train.runtime import torch_threads

SIMULATED_EXAMPLES = 300
"""Sentences of the seeded sample on which a simulated artifact is judged: it answers about one a second."""

__all__ = [
    "SIMULATED_EXAMPLES",
    "Evaluation",
    "check_reference",
    "evaluate_checkpoint",
    "evaluate_logits",
    "evaluate_model",
    "predict_logits",
    "predict_outputs",
    "run_checkpoint",
]


def predict_outputs(
    model: nn.Module, data: EncodedSplit, *, task: Task = "text-classification", batch_size: int = 32
) -> TextOutputs:
    """Runs a model in evaluation mode over a split, sentences of like length together.

    Returns:
        Every output of the task as one float32 array a text, in the split's order and without padding.
    """
    device = next(model.parameters()).device
    rows: dict[str, list[np.ndarray]] = {name: [np.empty(0)] * len(data) for name in outputs_of(task)}
    model.eval()
    with torch.inference_mode():
        for indices in sorted_batches(data.lengths, batch_size):
            output = model(**data.inputs(indices, device))
            for name, kept in rows.items():
                for index, row in zip(indices, getattr(output, name).float().cpu().numpy(), strict=True):
                    kept[index] = row[: data.lengths[index]] if is_per_token(task) else row
    return TextOutputs(rows, data.truncated)


def predict_logits(model: nn.Module, data: EncodedSplit, *, batch_size: int = 32) -> np.ndarray:
    """Runs a classifier over a split; returns float32 logits of shape (examples, labels), in the split's order."""
    return np.stack(predict_outputs(model, data, batch_size=batch_size).rows[LOGITS])


def evaluate_model(
    model: nn.Module, data: EncodedSplit, *, task: Task = "text-classification", batch_size: int = 32
) -> Evaluation:
    """Evaluates a model that answers with one row of logits a text and is already loaded."""
    found = predict_outputs(model, data, task=task, batch_size=batch_size)
    names = [str(index) for index in range(found.logits.shape[1])]
    return HEADS[task].evaluate(found, Split(("",) * len(data), data.labels), data.encoder, names)


def run_checkpoint(
    checkpoint: Checkpoint, texts: Sequence[Text], *, task: Task, threads: int, max_tokens: int, batch_size: int = 32
) -> tuple[TextOutputs, EncodedSplit]:
    """Loads a checkpoint and runs it on texts, on the CPU; returns its outputs and the texts as it read them."""
    with torch_threads(threads):
        data = encode_split(checkpoint, Split(tuple(texts), (0,) * len(texts)), max_tokens=max_tokens)
        return predict_outputs(load_compressed(checkpoint, task=task), data, task=task, batch_size=batch_size), data


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    split: Split,
    *,
    threads: int,
    max_tokens: int = 128,
    batch_size: int = 32,
    task: Task | None = None,
) -> Evaluation:
    """Loads a checkpoint and evaluates it on a split, on the CPU.

    Args:
        checkpoint: the model.
        split: labelled text.
        threads: threads of the run.
        max_tokens: longer texts are cut, or at the model's own limit if that is less.
        batch_size: texts a batch.
        task: what the head answers; found from the checkpoint where None.

    Raises:
        ModelError: the checkpoint does not load, or has fewer labels than the data.
        DataError: an empty split.
    """
    if not len(split):
        raise DataError("there are no examples to evaluate", remedy="name a split that holds labelled rows")
    task = task or find_task(checkpoint)
    head = HEADS[task]
    found, data = run_checkpoint(
        checkpoint, head.texts(split), task=task, threads=threads, max_tokens=max_tokens, batch_size=batch_size
    )
    return head.evaluate(found, split, data.encoder, checkpoint.labels)


def check_reference(evaluation: Evaluation, name: str = "the reference model") -> None:
    """Refuses a reference that is no better than an answer that never looks at the text.

    Everything after it (drop in points, parity on labels) would be measured against noise.

    Raises:
        ModelError: the score does not exceed the floor (for accuracy: the majority class's share).
        DataError: all examples have one label, so that no score exceeds it.
    """
    if evaluation.value > evaluation.majority_class:
        return
    if evaluation.metric == "accuracy" and evaluation.majority_class == 1:
        raise DataError(
            f"all {evaluation.examples} examples on which {name} is scored have the same label; expected at least two "
            "different labels, or every answer that never looks at the text is right",
            remedy="name labelled text with examples of at least two classes, and check which column is its label",
        )
    floor = "always answering the most frequent label" if evaluation.metric == "accuracy" else "not looking at the text"
    raise ModelError(
        f"{name} scores {evaluation.value:.1%} on {evaluation.examples} examples; expected more than the "
        f"{evaluation.majority_class:.1%} of {floor}",
        remedy="fine-tune it on this data first, and check that label names and order are the model's",
    )
