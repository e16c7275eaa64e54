"""What a model answers, and the canonical names of the outputs that say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

Task = Literal[
    "text-classification",
    "multi-label-classification",
    "regression",
    "token-classification",
    "question-answering",
    "sentence-embedding",
]
TASKS: tuple[Task, ...] = get_args(Task)

Activation = Literal["softmax", "sigmoid", "identity"]

LOGITS = "logits"
START_LOGITS = "start_logits"
END_LOGITS = "end_logits"
EMBEDDING = "embedding"

_OUTPUTS: Mapping[Task, tuple[str, ...]] = {
    "question-answering": (START_LOGITS, END_LOGITS),
    "sentence-embedding": (EMBEDDING,),
}
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    LOGITS: ("output", "scores"),
    EMBEDDING: ("sentence_embedding", "sentence_embeddings", "embeddings"),
}
"""What other exporters call the same output."""
_NO_ANSWER = ("hidden", "pooler", "token_embeddings")


def outputs_of(task: Task) -> tuple[str, ...]:
    """Returns the canonical output names of a task, in order."""
    return _OUTPUTS.get(task, (LOGITS,))


def is_per_token(task: Task) -> bool:
    """Returns whether the outputs have a value a token, of which those of padding mean nothing."""
    return task in ("token-classification", "question-answering")


def is_token_output(name: str, rank: int) -> bool:
    """Returns whether an output of a canonical name and ``rank`` dimensions has a value a token."""
    return name in (START_LOGITS, END_LOGITS) or (name == LOGITS and rank == 3)


def output_roles(names: Sequence[str]) -> dict[str, str]:
    """Returns canonical output name to a file's own, for those that are known.

    A single output of an unknown name is taken for the logits, unless it says that it holds hidden states.
    """
    roles: dict[str, str] = {}
    for canonical in (LOGITS, START_LOGITS, END_LOGITS, EMBEDDING):
        found = [name for name in (canonical, *_OTHER_NAMES.get(canonical, ())) if name in names]
        if found:
            roles[canonical] = found[0]
    if not roles and len(names) == 1 and not any(word in names[0] for word in _NO_ANSWER):
        return {LOGITS: names[0]}
    return roles
