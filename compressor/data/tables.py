"""Rows of named cells from a file, whatever its format; every row keeps the number a person finds it under."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from compressor.core.errors import DataError, MissingExtraError

SUFFIXES = (".tsv", ".csv", ".jsonl", ".parquet")
"""Recognised file endings; a folder written by ``datasets.save_to_disk`` is recognised by its contents."""

_DATASET_FILE = "dataset_info.json"
_DATASET_DICT_FILE = "dataset_dict.json"


@dataclass(frozen=True)
class Row:
    """One row; ``number`` counts from 1 and, in text files, counts the header too: the line an editor shows."""

    number: int
    cells: Mapping[str, Any]


class _Rows(Iterable[Row]):
    """Rows that a function reads from the file."""

    def __init__(self, read: Callable[[], Iterator[Row]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Row]:
        return self._read()


@dataclass(frozen=True)
class Table:
    """A file's rows, its columns in file order, and the class names of columns whose type states them.

    The rows of a text file are read anew in each pass over them, so that its size does not matter.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Iterable[Row]
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_table(path: Path) -> Table:
    """Reads a TSV, CSV, JSONL or Parquet file, or a single-split ``datasets`` folder.

    TSV is raw tab-separated text without quoting (a ``"`` is a character like any other); CSV follows RFC 4180.

    Raises:
        DataError: no such file, an unknown format, bad UTF-8, a malformed row, or no rows at all.
        MissingExtraError: Parquet or a datasets folder without the ``datasets`` package.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist; expected a file of labelled text", remedy="check the path")
    if path.is_dir():
        if not (path / _DATASET_FILE).is_file():
            raise DataError(
                f"{path} is a folder; expected a file", remedy="name a file in it, or use 'dir:' for a folder"
            )
        table = _read_datasets_folder(path)
    else:
        readers = {".tsv": _read_tsv, ".csv": _read_csv, ".jsonl": _read_jsonl, ".parquet": _read_parquet}
        reader = readers.get(path.suffix.lower())
        if reader is None:
            raise DataError(
                f"{path} has the ending '{path.suffix}'; expected one of {', '.join(SUFFIXES)}",
                remedy="convert the file or give it the ending of its format",
            )
        table = reader(path)
    if next(iter(table.rows), None) is None:
        raise DataError(f"{path} holds no rows; expected at least one", remedy="check that the file was written whole")
    return table


def is_dataset_dict(folder: Path) -> bool:
    """Returns whether ``folder`` was written by ``DatasetDict.save_to_disk``; its splits are its sub-folders."""
    return (folder / _DATASET_DICT_FILE).is_file()


def read_utf8(path: Path) -> str:
    """Reads a UTF-8 file (a byte-order mark is dropped).

    Raises:
        DataError: bytes that are not UTF-8, with their row.
    """
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A byte-order mark is not counted by the decoder's position, which never matters for counting lines.
        row = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, row {row}: the byte 0x{data[error.start]:02x} is not UTF-8; expected a UTF-8 file",
            remedy="convert it, e.g. iconv -f latin1 -t utf-8 FILE > NEW",
        ) from error


def lines_of(path: Path, newline: str) -> Iterator[str]:
    """Yields a file's lines with their ends, as :func:`open` cuts them for ``newline``; :func:`read_utf8`'s errors."""
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as stream:
            yield from stream
    except UnicodeDecodeError:
        read_utf8(path)  # names the row
        raise


def _read_tsv(path: Path) -> Table:
    return _with_header(path, _tsv_rows)


def _tsv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    # Only a line feed ends a row: str.splitlines would also cut at U+2028 and its like inside a sentence.
    lines = (line.removesuffix("\n").removesuffix("\r") for line in lines_of(path, "\n"))
    return ((number, line.split("\t")) for number, line in enumerate(lines, start=1) if line)


def _read_csv(path: Path) -> Table:
    return _with_header(path, _csv_rows)


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(lines_of(path, ""), strict=True)
    first_line = 1
    try:
        for cells in reader:
            if cells:
                yield first_line, cells
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, row {first_line}: {error}; expected CSV as in RFC 4180",
            remedy='enclose a text that holds a quote in quotes and double the quote: "say ""hi"""',
        ) from error


def _with_header(path: Path, parse: Callable[[Path], Iterator[tuple[int, list[str]]]]) -> Table:
    _, header = next(parse(path), (0, []))
    columns = tuple(name.strip() for name in header)
    if len(set(columns)) != len(columns):
        raise DataError(f"{path}, row 1: a column name occurs twice in {list(columns)}", remedy="rename one of them")

    def rows() -> Iterator[Row]:
        for number, cells in islice(parse(path), 1, None):
            if len(cells) != len(columns):
                raise DataError(
                    f"{path}, row {number}: found {len(cells)} cells, expected {len(columns)} ({', '.join(columns)})",
                    remedy="mend the row; a TSV text holds no tab, a CSV text with a comma stands in quotes",
                )
            yield Row(number, dict(zip(columns, cells, strict=True)))

    return Table(path, columns, _Rows(rows))


def _read_jsonl(path: Path) -> Table:
    rows = _Rows(lambda: _jsonl_rows(path))
    return Table(path, tuple(dict.fromkeys(name for row in rows for name in row.cells)), rows)


def _jsonl_rows(path: Path) -> Iterator[Row]:
    for number, line in enumerate(lines_of(path, "\n"), start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"{path}, row {number}: not valid JSON ({error}); expected one object a line",
                remedy='write each row as {"text": …, "label": …} on a line of its own',
            ) from error
        if not isinstance(value, dict):
            raise DataError(
                f"{path}, row {number}: found {type(value).__name__}, expected a JSON object",
                remedy='write each row as {"text": …, "label": …}',
            )
        yield Row(number, value)


def _read_parquet(path: Path) -> Table:
    datasets = _datasets()
    import pyarrow

    try:
        arrow = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a readable Parquet file: {error}", remedy="write it again") from error
    return _from_dataset(path, datasets.Dataset(datasets.table.InMemoryTable(arrow)))


def _read_datasets_folder(path: Path) -> Table:
    datasets = _datasets()
    try:
        return _from_dataset(path, datasets.load_from_disk(str(path), keep_in_memory=True))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a readable datasets folder: {error}", remedy="write it again") from error


def _from_dataset(path: Path, dataset: Any) -> Table:
    names = {column: tuple(feature.names) for column, feature in dataset.features.items() if hasattr(feature, "names")}
    rows = tuple(Row(number, cells) for number, cells in enumerate(dataset.to_list(), start=1))
    return Table(path, tuple(dataset.column_names), rows, names)


def _datasets() -> Any:
    try:
        import datasets
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("datasets", "data") from error
    return datasets
