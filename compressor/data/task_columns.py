"""Labelled rows of the tasks that are more than one label a text; :mod:`compressor.data.columns` is for that one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from compressor.core.errors import DataError, nearest
from compressor.core.schema import Text
from compressor.core.task import Task
from compressor.data import columns
from compressor.data.columns import TextColumns
from compressor.data.dataset import Split
from compressor.data.tables import Row, Table

Read = Callable[[Table, TextColumns | None, str | None, Sequence[str]], Split]
"""(table, text columns asked for, label column asked for, label names) to a split."""

_SEPARATOR = ","
"""Between the label names of one row, where the format has no lists."""


def task_split(
    table: Table,
    task: Task,
    names: Sequence[str],
    *,
    text_column: str | tuple[str, str] | None = None,
    label_column: str | None = None,
) -> Split:
    """Returns a table as texts and the labels of a task; see :class:`compressor.data.dataset.Split` for their form.

    Args:
        table: the rows.
        task: decides which columns are looked for: ``label``; ``labels`` (a list, or names joined by commas); ``label``
            or ``score`` (a number); ``tokens`` and ``tags`` (lists, or joined by spaces); ``question``, ``context`` and
            ``answers`` or ``answer``; two texts and ``score``.
        names: label names in the order of the logits.
        text_column: overrides the name of the text column(s).
        label_column: overrides the name of the label column.

    Raises:
        DataError: a column that is not there, or a row that does not hold what the task needs.
    """
    asked = (text_column,) if isinstance(text_column, str) else text_column
    if task == "text-classification":
        texts = columns.text_columns(table, text_column)
        return columns.labelled_split(table, texts, label_column or "label", names)
    return _READERS[task](table, asked, label_column, names)


def found_labels(table: Table, task: Task, label_column: str | None = None) -> tuple[str, ...]:
    """Returns the labels of a training table in a fixed order, for a head that is still to be trained.

    Raises:
        DataError: no column of labels.
    """
    if task == "regression":
        return ("score",)
    if task == "multi-label-classification":
        column = _column(table, label_column, ("labels", "label"))
        return tuple(sorted({name for row in table.rows for name in _items(table, row, column, _SEPARATOR)}))
    return ()


def _multi_label(table: Table, asked: TextColumns | None, label: str | None, names: Sequence[str]) -> Split:
    column = _column(table, label, ("labels", "label"))
    index = {name: position for position, name in enumerate(names)}
    rows = []
    for row in table.rows:
        found = [_known(table, row, name, index) for name in _items(table, row, column, _SEPARATOR)]
        rows.append(tuple(float(position in found) for position in range(len(names))))
    return Split(_texts(table, asked), tuple(rows))


def _number(table: Table, asked: TextColumns | None, label: str | None, names: Sequence[str]) -> Split:
    column = _column(table, label, ("score", "label"))
    return Split(_texts(table, asked), tuple(_float(table, row, column) for row in table.rows))


def _pairs(table: Table, asked: TextColumns | None, label: str | None, names: Sequence[str]) -> Split:
    split = _number(table, asked, label, names)
    if not all(isinstance(text, tuple) for text in split.texts):
        raise DataError(
            f"{table.path} holds single texts; expected pairs with a score of how alike they are",
            remedy="name the columns sentence1, sentence2 and score",
        )
    return split


def _tags(table: Table, asked: TextColumns | None, label: str | None, names: Sequence[str]) -> Split:
    words_column = _column(table, None if asked is None else asked[0], ("tokens", "words", "text"))
    tags_column = _column(table, label, ("tags", "ner_tags", "labels"))
    index = {name: position for position, name in enumerate(names)}
    texts, labels = [], []
    for row in table.rows:
        words, tags = _items(table, row, words_column, None), _items(table, row, tags_column, None)
        if len(words) != len(tags) or not words:
            raise DataError(
                f"{table.path}, row {row.number}: {len(words)} words and {len(tags)} tags; expected a tag a word",
                remedy="write both as lists of equal length (JSONL), or joined by single spaces",
            )
        if split := next((word for word in words if not word or word.split() != [word]), None):
            raise DataError(
                f"{table.path}, row {row.number}: the word '{split}' holds a space; expected one word a tag",
                remedy="tag each of its words",
            )
        texts.append(" ".join(words))
        labels.append(tuple(_known(table, row, tag, index) for tag in tags))
    return Split(tuple(texts), tuple(labels))


def _questions(table: Table, asked: TextColumns | None, label: str | None, names: Sequence[str]) -> Split:
    texts = columns.texts(table, asked or ("question", "context"))
    column = _column(table, label, ("answers", "answer"))
    golds = []
    for row, text in zip(table.rows, texts, strict=True):
        answers, starts = _answers(row, column)
        for answer, start in zip(answers, starts, strict=False):
            found = text[1][start : start + len(answer)] if isinstance(start, int) else answer
            if found != answer:
                raise DataError(
                    f"{table.path}, row {row.number}: the context holds '{found[:40]}' at {start}; the answer is "
                    f"'{answer[:40]}'",
                    remedy="answer_start counts characters from 0",
                )
        golds.append(tuple(answers))
    return Split(texts, tuple(golds))


_READERS: Mapping[Task, Read] = {
    "multi-label-classification": _multi_label,
    "regression": _number,
    "token-classification": _tags,
    "question-answering": _questions,
    "sentence-embedding": _pairs,
}


def _answers(row: Row, column: str) -> tuple[list[str], list[Any]]:
    """Returns accepted answers and where they start; none where the context has no answer (SQuAD 2's form included)."""
    value: Any = row.cells.get(column)
    starts: Any = row.cells.get("answer_start")
    if isinstance(value, dict):
        value, starts = value.get("text"), value.get("answer_start")
    listed = value if isinstance(value, list) else [] if value in (None, "") else [value]
    return [str(item) for item in listed], starts if isinstance(starts, list) else [starts]


def _texts(table: Table, asked: TextColumns | None) -> tuple[Text, ...]:
    return columns.texts(table, asked or columns.text_columns(table, None))


def _column(table: Table, asked: str | None, usual: Sequence[str]) -> str:
    found = asked or next((name for name in usual if name in table.columns), usual[0])
    columns.require(table, found, "label_column")
    return found


def _items(table: Table, row: Row, column: str, separator: str | None) -> list[str]:
    """Returns a list cell as text, or a text cell cut at ``separator`` (None: at spaces)."""
    value = row.cells.get(column)
    if isinstance(value, list):
        return [str(item) for item in value]
    if isinstance(value, str):
        return [item.strip() for item in value.split(separator) if item.strip()]
    raise DataError(
        f"{table.path}, row {row.number}: '{column}' holds {columns.shown(value)}, expected a list or text",
        remedy="mend the row",
    )


def _known(table: Table, row: Row, name: str, index: Mapping[str, int]) -> int:
    """Returns the index of a label name; a whole number is one already, where the names are words."""
    if name in index:
        return index[name]
    if name.isdecimal() and int(name) < len(index):
        return int(name)
    raise DataError(
        f"{table.path}, row {row.number}: unknown label '{name}'; expected one of {_some(index)}",
        remedy=nearest(name, index),
    )


def _float(table: Table, row: Row, column: str) -> float:
    try:
        value = float(row.cells.get(column, ""))
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        found = columns.shown(row.cells.get(column))
        raise DataError(
            f"{table.path}, row {row.number}: '{column}' holds {found}, expected a number",
            remedy="mend the row",
        )
    return value


def _some(names: Mapping[str, int]) -> str:
    known: Iterator[str] = iter(names)
    shown = [name for name, _ in zip(known, range(8), strict=False)]
    return ", ".join(shown) + (", …" if len(names) > 8 else "")
