"""What learning from a teacher needs: a stage that made it, and labels and tokens that mean the same to all."""

from __future__ import annotations

from collections.abc import Collection

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, RecipeError, nearest
from compressor.data.batches import EncodedSplit
from compressor.stage import Context
from compressor.text import load_tokenizer


def check_teacher(name: str | None, earlier: Collection[str]) -> None:
    """Raises RecipeError where a stage's ``teacher`` is named and is none of the stages before it."""
    if name is not None and name not in earlier:
        raise RecipeError(
            f"'teacher: {name}' names no earlier stage that made a checkpoint",
            remedy=nearest(name, earlier) if earlier else "put that stage before this one",
        )


def named_teacher(name: str | None, context: Context) -> Checkpoint | None:
    """Returns the checkpoint of the stage that ``teacher`` names; None where it names none.

    Raises:
        RecipeError: that stage made no checkpoint.
    """
    check_teacher(name, context.checkpoints)
    return None if name is None else context.checkpoints[name]


def check_labels(teacher: Checkpoint, names: tuple[str, ...]) -> None:
    """Raises ModelError where the teacher's labels are not the data's, in the data's order."""
    found = teacher.labels
    if found == names:
        return
    if sorted(found) == sorted(names):
        raise ModelError(
            f"the teacher {teacher.path} has the data's labels in another order: {', '.join(found[:6])}; "
            f"expected {', '.join(names[:6])}",
            remedy="number the data's labels in the teacher's order, or put a finetune stage before distill",
        )
    raise ModelError(
        f"the teacher {teacher.path} has the labels {', '.join(found[:6])}; the data has {', '.join(names[:6])}",
        remedy="put a finetune stage before distill",
    )


def same_lengths(teacher: EncodedSplit, student: EncodedSplit) -> None:
    """Raises ModelError where the two tokenizers cut a text into different numbers of tokens."""
    pairs = zip(teacher.lengths, student.lengths, strict=True)
    for position, (theirs, ours) in enumerate(pairs, start=1):
        if theirs != ours:
            raise ModelError(
                f"training text {position} has {ours} tokens for the student and {theirs} for the teacher; "
                "expected the same number, because states are compared token by token",
                remedy="save the teacher's tokenizer files beside the student's weights",
            )


def same_vocabulary(teacher: Checkpoint, student: Checkpoint) -> None:
    """Refuses two models whose token ids mean different things.

    Raises:
        ModelError: the vocabularies differ.
    """
    ours, theirs = _vocabulary(student), _vocabulary(teacher)
    if ours != theirs:
        differing = len(ours.items() ^ theirs.items())
        raise ModelError(
            f"student ({len(ours)} pieces) and teacher ({len(theirs)}) differ in {differing} vocabulary entries; "
            "expected one vocabulary, so that both read the same token ids",
            remedy="distil from a teacher with the student's tokenizer, or let 'student:' copy the teacher's layers",
        )


def _vocabulary(checkpoint: Checkpoint) -> dict[str, int]:
    vocabulary: dict[str, int] = load_tokenizer(checkpoint.path).get_vocab()
    return vocabulary
