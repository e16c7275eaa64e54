"""From files to a :class:`TextDataset`: what the ``data:`` key of a recipe, ``--eval`` and ``--calibrate`` name."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from compressor.core.errors import DataError
from compressor.core.hashing import sha256_json
from compressor.core.schema import Record, Text
from compressor.core.task import Task
from compressor.data import columns
from compressor.data.dataset import Split, TextDataset
from compressor.data.stored import StoredTexts
from compressor.data.tables import SUFFIXES, is_dataset_dict, lines_of, read_table
from compressor.data.task_columns import found_labels, task_split

SplitName = Literal["train", "validation", "test"]
TextColumn = str | tuple[str, str] | None

_FILE_NAMES: dict[SplitName, tuple[str, ...]] = {
    "train": ("train",),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test",),
}
_VALIDATION_SHARE = 0.1


class DataSpec(Record):
    """Where labelled text is: a folder with train, validation and test, or the files one by one."""

    dir: Path | None = None
    """Folder with ``train``, ``validation`` and ``test`` files, or one written by ``DatasetDict.save_to_disk``."""
    train: Path | None = None
    validation: Path | None = None
    """Carved from the training data (a tenth, stratified, always the same) where there is none."""
    test: Path | None = None
    sentences: Path | None = None
    """Texts for latency measurement; the test texts where there are none."""
    text_column: TextColumn = None
    """Name of the text column, or two names; default ``text`` (+ ``text_pair``), ``sentence``, ``sentence1`` +
    ``sentence2``, ``premise`` + ``hypothesis``, or ``question`` + ``context``."""
    label_column: str = "label"

    @model_validator(mode="after")
    def _dir_or_files(self) -> Self:
        files = [name for name in _FILE_NAMES if getattr(self, name) is not None]
        if self.dir is not None and files:
            raise ValueError(f"'dir' and '{files[0]}' exclude each other: name the folder or the files")
        if self.dir is None and not {"train", "test"} <= set(files):
            raise ValueError("name 'dir', or both 'train' and 'test'")
        return self


def read_dataset(spec: DataSpec, *, task: Task = "text-classification", label_names: Sequence[str] = ()) -> TextDataset:
    """Reads all splits; the label order is fixed by the training data and shared by every split.

    Args:
        spec: where they are.
        task: what the labels are; see :func:`compressor.data.task_columns.task_split`.
        label_names: the order of labels that the model already has, where its head was trained for the task.

    Raises:
        DataError: a file or row that cannot be read as labelled text (see :mod:`compressor.data.tables`).
        MissingExtraError: Parquet or a datasets folder without the ``datasets`` package.
    """
    files = _split_files(spec)
    if task != "text-classification":
        return _read_task(spec, files, task, label_names)
    train_table = read_table(files["train"])
    text = columns.text_columns(train_table, spec.text_column)
    names = columns.label_order(train_table, spec.label_column, columns.label_values(train_table, spec.label_column))
    train = columns.labelled_split(train_table, text, spec.label_column, names, keep=StoredTexts)
    test = columns.labelled_split(read_table(files["test"]), text, spec.label_column, names)
    if "validation" in files:
        validation = columns.labelled_split(read_table(files["validation"]), text, spec.label_column, names)
    else:
        train, validation = carve_validation(train)
    data = TextDataset(names, train, validation, test, sentences=tuple(test.texts))
    if spec.sentences is None:
        return data
    return replace(data, sentences=read_sentences(spec.sentences, text_column=spec.text_column))


def _read_task(spec: DataSpec, files: Mapping[SplitName, Path], task: Task, label_names: Sequence[str]) -> TextDataset:
    tables = {name: read_table(path) for name, path in files.items()}
    column = None if spec.label_column == "label" else spec.label_column
    names = tuple(label_names) or found_labels(tables["train"], task, column)
    splits = {
        name: task_split(table, task, names, text_column=spec.text_column, label_column=column)
        for name, table in tables.items()
    }
    train, test = splits["train"], splits["test"]
    if "validation" in splits:
        validation = splits["validation"]
    else:
        train, validation = carve_validation(Split(train.texts, train.labels), stratify=False)
    # Each half of a pair is embedded by itself, so that is what takes time.
    halves = tuple(text for pair in test.texts for text in pair) if task == "sentence-embedding" else tuple(test.texts)
    named = spec.sentences and read_sentences(spec.sentences, text_column=spec.text_column)
    return TextDataset(names, train, validation, test, sentences=named or halves, task=task)


def read_split(
    path: Path,
    label_names: Sequence[str],
    *,
    task: Task = "text-classification",
    text_column: TextColumn = None,
    label_column: str | None = None,
    split: SplitName = "test",
) -> Split:
    """Reads one file of labelled text whose labels are known; a folder stands for its ``split``.

    Args:
        path: the file or folder.
        label_names: label names in the order of the logits; numbered labels count as indices into them.
        task: decides which columns hold the labels; see :func:`compressor.data.task_columns.task_split`.
        text_column: as in :class:`DataSpec`.
        label_column: overrides the task's usual name.
        split: which split of a folder.

    Raises:
        DataError: as :func:`read_dataset`.
    """
    table = read_table(_one_file(path, split))
    return task_split(table, task, label_names, text_column=text_column, label_column=label_column)


def read_sentences(path: Path, *, text_column: TextColumn = None) -> tuple[Text, ...]:
    """Reads texts alone: one sentence a line of a ``.txt`` file, or the text column(s) of any labelled format.

    Raises:
        DataError: no file, no sentence, bad UTF-8, or no text column.
    """
    if path.suffix.lower() != ".txt":
        table = read_table(_one_file(path, "test"))
        return columns.texts(table, columns.text_columns(table, text_column))
    return tuple(read_corpus(path))


def read_corpus(path: Path) -> Sequence[Text]:
    """Reads texts like :func:`read_sentences`; the lines of a ``.txt`` file stay in a file, for there may be many.

    Raises:
        DataError: see there.
    """
    if path.suffix.lower() != ".txt":
        return read_sentences(path)
    if not path.is_file():
        raise DataError(f"{path} does not exist; expected one sentence a line", remedy="check the path")
    found = StoredTexts(line for raw in lines_of(path, "\n") if (line := raw.strip()))
    if not found:
        raise DataError(f"{path} holds no sentence; expected one a line", remedy="write at least one sentence")
    return found


def carve_validation(train: Split, *, stratify: bool = True) -> tuple[Split, Split]:
    """Moves a tenth of each class (of all texts, where labels are no classes) to a validation split.

    The choice depends on the texts alone.

    Equal texts stay together, so that no validation text is also trained on. A class of one text stays in train.

    Raises:
        DataError: no class has two different texts, so nothing can be held out.
    """
    digests: dict[Hashable, array[int]] = defaultdict(lambda: array("Q"))
    for text, label in zip(train.texts, train.labels, strict=True):
        digests[label if stratify else None].append(_digest(text))
    held_out: list[np.ndarray] = []
    for found in digests.values():
        # The texts with the lowest hashes; a hash is a text's all that has to be remembered of it.
        different = np.unique(np.frombuffer(found, dtype=np.uint64))
        if len(different) > 1:
            held_out.append(different[: max(1, round(len(different) * _VALIDATION_SHARE))])
    if not held_out:
        raise DataError("no class has two different texts to hold one out", remedy="name a validation file")
    chosen = np.unique(np.concatenate(held_out))
    return _subset(train, chosen, keep=False), _subset(train, chosen, keep=True)


def _digest(text: Text) -> int:
    return int(sha256_json(text)[:16], 16)


def _subset(split: Split, chosen: np.ndarray, *, keep: bool) -> Split:
    rows = array("q")
    for row, text in enumerate(split.texts):
        digest = np.uint64(_digest(text))
        place = int(np.searchsorted(chosen, digest))
        if bool(place < len(chosen) and chosen[place] == digest) is keep:
            rows.append(row)
    texts = (split.texts[row] for row in rows)
    return Split(tuple(texts) if keep else StoredTexts(texts), tuple(split.labels[row] for row in rows))


def _split_files(spec: DataSpec) -> dict[SplitName, Path]:
    if spec.dir is None:
        named = {name: getattr(spec, name) for name in _FILE_NAMES}
        return {name: path for name, path in named.items() if path is not None}
    if not spec.dir.is_dir():
        raise DataError(f"{spec.dir} is not a folder; expected one with train and test data", remedy="check the path")
    files = {name: path for name in _FILE_NAMES if (path := _in_folder(spec.dir, name)) is not None}
    for name in ("train", "test"):
        if name not in files:
            raise _no_split(spec.dir, name)
    return files


def _one_file(path: Path, split: SplitName) -> Path:
    if not path.is_dir() or (path / "dataset_info.json").is_file():
        return path
    found = _in_folder(path, split)
    if found is None:
        raise _no_split(path, split)
    return found


def _in_folder(folder: Path, split: SplitName) -> Path | None:
    for name in _FILE_NAMES[split]:
        if is_dataset_dict(folder):
            if (folder / name).is_dir():
                return folder / name
            continue
        found = [file for suffix in SUFFIXES if (file := folder / f"{name}{suffix}").is_file()]
        if len(found) > 1:
            raise DataError(
                f"{folder} holds {' and '.join(file.name for file in found)}; expected one {split} file",
                remedy="remove one, or name the files with 'train:', 'validation:' and 'test:'",
            )
        if found:
            return found[0]
    return None


def _no_split(folder: Path, split: str) -> DataError:
    found = ", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "nothing"
    return DataError(
        f"{folder} holds no {split} data; found {found}; expected {split} with one of {', '.join(SUFFIXES)}",
        remedy=f"add a {split} file, or name the files with 'train:', 'validation:' and 'test:'",
    )
