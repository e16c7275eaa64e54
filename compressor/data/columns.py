"""Which columns of a table hold the text and the label, and in which order labels are numbered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from compressor.core.errors import DataError, nearest
from compressor.core.schema import Text
from compressor.data.dataset import Split
from compressor.data.tables import Row, Table

TextColumns = tuple[str, ...]
"""One column name, or two for pairs of texts."""

_GUESSES: tuple[TextColumns, ...] = (
    ("text", "text_pair"), ("text",), ("sentence",), ("sentence1", "sentence2"), ("premise", "hypothesis"),
    ("question", "context"), ("tokens",),
)  # fmt: skip


def text_columns(table: Table, asked: str | tuple[str, str] | None) -> TextColumns:
    """Returns the text columns that were asked for, or those guessed from the usual names.

    Raises:
        DataError: a column that is not there (the nearest is named), or none with a usual name.
    """
    if asked is not None:
        chosen: TextColumns = (asked,) if isinstance(asked, str) else asked
        for column in chosen:
            require(table, column, "text_column")
        return chosen
    for columns in _GUESSES:
        if all(column in table.columns for column in columns):
            return columns
    usual = " or ".join(" + ".join(columns) for columns in _GUESSES)
    raise DataError(
        f"{table.path} has the columns {', '.join(table.columns)}; expected a text column named {usual}",
        remedy="rename the column in the file, or name it under 'data:' of a recipe with 'text_column' (two names for "
        "pairs); the first row has to name the columns",
    )


def texts(table: Table, columns: TextColumns) -> tuple[Text, ...]:
    """Returns the text, or pair of texts, of every row.

    Raises:
        DataError: a column that is not there, or a cell that is no text.
    """
    return tuple(_texts(table, columns))


def label_values(table: Table, column: str) -> tuple[str, ...]:
    """Returns every row's label as a name; a numbered class whose names the format states becomes its name.

    Raises:
        DataError: no such column, or a row without a label.
    """
    require(table, column, "label_column")
    names = table.class_names.get(column)
    known: dict[str, str] = {}  # each name once in memory, however many rows have it
    found = (_label(table, row, column, names) for row in table.rows)
    return tuple(known.setdefault(value, value) for value in found)


def label_order(table: Table, column: str, values: Iterable[str]) -> tuple[str, ...]:
    """Fixes the order of labels: the format's own class names, else numbers by value, else names sorted.

    Raises:
        DataError: fewer than two classes.
    """
    found = set(values)
    if len(found) < 2:
        raise DataError(
            f"{table.path} holds the one label '{next(iter(found), '')}'; expected at least two classes to learn",
            remedy=f"check that '{column}' is the label column",
        )
    if (names := table.class_names.get(column)) is not None:
        return names
    if all(_is_number(value) for value in found):
        return tuple(sorted(found, key=float))
    return tuple(sorted(found))


def labelled_split(
    table: Table,
    columns: TextColumns,
    column: str,
    names: Sequence[str],
    *,
    keep: Callable[[Iterable[Text]], Sequence[Text]] = tuple,
) -> Split:
    """Returns the table as texts and label indices into ``names``.

    A column of integers counts as indices where ``names`` are words. ``keep`` says where the texts are kept.

    Raises:
        DataError: a label that ``names`` does not hold, with its row.
    """
    values = label_values(table, column)
    index = {name: position for position, name in enumerate(names)}
    if any(value not in index for value in values) and _are_indices(values, names):
        return Split(keep(_texts(table, columns)), tuple(int(value) for value in values))
    for row, value in zip(table.rows, values, strict=True):
        if value not in index:
            shown = ", ".join(list(names)[:8]) + (", …" if len(names) > 8 else "")
            raise DataError(
                f"{table.path}, row {row.number}: unknown label '{value}'; expected one of {shown}",
                remedy=f"{nearest(value, names)}; every label must occur in the training data",
            )
    return Split(keep(_texts(table, columns)), tuple(index[value] for value in values))


def require(table: Table, column: str, key: str) -> None:
    """Raises DataError where a table lacks a column; ``key`` is the setting that names it."""
    if column not in table.columns:
        raise DataError(
            f"{table.path} has no column '{column}'; found {', '.join(table.columns)}",
            remedy=f"{nearest(column, table.columns)}; rename the column in the file, or name it under 'data:' of a "
            f"recipe with '{key}'",
        )


def _texts(table: Table, columns: TextColumns) -> Iterator[Text]:
    for column in columns:
        require(table, column, "text_column")
    for row in table.rows:
        found = tuple(_text(table, row, column) for column in columns)
        yield found[0] if len(found) == 1 else (found[0], found[1])


def _text(table: Table, row: Row, column: str) -> str:
    value = row.cells.get(column)
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return " ".join(value)
    if not isinstance(value, str):
        raise DataError(
            f"{table.path}, row {row.number}: '{column}' holds {shown(value)}, expected text",
            remedy="mend the row or leave it out",
        )
    return value


def _label(table: Table, row: Row, column: str, names: tuple[str, ...] | None) -> str:
    value = row.cells.get(column)
    if names is not None and isinstance(value, int):
        if 0 <= value < len(names):
            return names[value]
        raise DataError(
            f"{table.path}, row {row.number}: label {value} is none of the {len(names)} classes",
            remedy="-1 usually marks a split without labels: name another file",
        )
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise DataError(
        f"{table.path}, row {row.number}: '{column}' holds {shown(value)}, expected a label name or number",
        remedy="label the row or leave it out",
    )


def shown(value: Any) -> str:
    """Returns a cell's value as an error message names it."""
    return "nothing" if value is None or value == "" else f"{type(value).__name__} {value!r}"


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _are_indices(values: Sequence[str], names: Sequence[str]) -> bool:
    words = not all(_is_number(name) for name in names)
    return words and all(value.isdecimal() and int(value) < len(names) for value in values)
