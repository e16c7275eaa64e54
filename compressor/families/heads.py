"""Which head a checkpoint has, and the transformers class that loads it."""

from __future__ import annotations

from collections.abc import Mapping

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.core.task import Task
from compressor.families.pooling import is_sentence_transformer

AUTO_CLASSES: Mapping[Task, str] = {
    "text-classification": "AutoModelForSequenceClassification",
    "multi-label-classification": "AutoModelForSequenceClassification",
    "regression": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "sentence-embedding": "AutoModel",
}
"""For a sentence embedding the encoder alone; pooling is added by :class:`compressor.families.pooling.Embedder`."""

LABELLED: frozenset[Task] = frozenset(
    {"text-classification", "multi-label-classification", "regression", "token-classification"}
)
"""Tasks whose logits have names in the config."""

_PROBLEM_TYPES: Mapping[str, Task] = {
    "single_label_classification": "text-classification",
    "multi_label_classification": "multi-label-classification",
    "regression": "regression",
}


def find_task(checkpoint: Checkpoint) -> Task:
    """Returns the task of a checkpoint's head, from its architecture, ``problem_type`` and sentence-transformers files.

    A plain encoder without those files counts as a text classifier whose head is still to be trained.

    Raises:
        ModelError: a head that no format carries (masked words, next sentence, multiple choice).
    """
    config = checkpoint.config
    architecture = str(next(iter(config.get("architectures") or ()), ""))
    _, has_head, head = architecture.partition("For")
    if head == "SequenceClassification":
        if config.get("problem_type") in _PROBLEM_TYPES:
            return _PROBLEM_TYPES[config["problem_type"]]
        return "regression" if len(checkpoint.labels) == 1 else "text-classification"
    if head == "TokenClassification":
        return "token-classification"
    if head == "QuestionAnswering":
        return "question-answering"
    if is_sentence_transformer(checkpoint):
        return "sentence-embedding"
    if has_head:
        raise ModelError(
            f"{checkpoint.path} is a {architecture}: its head is not one that can be exported; expected sequence or "
            "token classification, question answering, or a sentence-transformers folder",
            remedy="train a head first (a recipe with a finetune stage does), or pass --task sentence-embedding to "
            "export the encoder with mean pooling",
        )
    return "text-classification"
