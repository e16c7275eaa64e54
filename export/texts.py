"""Texts in the form that a model takes: single ones, or pairs."""

from __future__ import annotations

from collections.abc import Sequence

from compressor.core.schema import Text
from compressor.core.task import Task


def texts_for(task: Task, text_columns: int, texts: Sequence[Text]) -> tuple[Text, ...]:
    """Returns texts in the form that a model takes.

    Single texts become pairs with a neighbour where the model reads questions and contexts, or two texts; of pairs,
    each half is embedded or tagged by itself. Else a classifier takes what there is: pairs make it one of two texts.
    """
    if (task == "question-answering" or text_columns == 2) and not isinstance(texts[0], tuple):
        return tuple(zip(map(str, texts), map(str, (*texts[1:], texts[0])), strict=True))
    if task in ("sentence-embedding", "token-classification") and isinstance(texts[0], tuple):
        return tuple(half for pair in texts for half in pair)
    return tuple(texts)
