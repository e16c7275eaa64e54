import json
from pathlib import Path

import pytest

from compressor.core.errors import DataError
from compressor.data.dataset import Split
from compressor.data.reader import DataSpec, carve_validation, read_dataset, read_sentences, read_split

ROWS = [("hello", "greet"), ('say "hi"', "greet"), ("bye", "leave"), ("see you", "leave")]


def write(path: Path, rows: list[tuple[str, str]], columns: tuple[str, str] = ("text", "label")) -> Path:
    path.write_text("\n".join("\t".join(row) for row in [columns, *rows]) + "\n", encoding="utf-8")
    return path


def folder(path: Path, **rows: list[tuple[str, str]]) -> Path:
    path.mkdir(exist_ok=True)
    for name, found in {"train": ROWS, "test": ROWS, **rows}.items():
        write(path / f"{name}.tsv", found)
    return path


def as_csv(path: Path) -> Path:
    path.write_text(
        'text,label\r\nhello,greet\r\n"say ""hi""",greet\r\nbye,leave\r\nsee you,leave\r\n', encoding="utf-8"
    )
    return path


def as_jsonl(path: Path) -> Path:
    path.write_text("\n".join(json.dumps({"text": t, "label": n}) for t, n in ROWS), encoding="utf-8")
    return path


def as_parquet(path: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": [t for t, _ in ROWS], "label": [n for _, n in ROWS]}).to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [("a.tsv", lambda p: write(p, ROWS)), ("a.csv", as_csv), ("a.jsonl", as_jsonl), ("a.parquet", as_parquet)],
)
def test_every_format_gives_the_same_split(tmp_path: Path, name: str, make) -> None:
    split = read_split(make(tmp_path / name), ("greet", "leave"))
    assert split == Split(tuple(text for text, _ in ROWS), (0, 0, 1, 1))


def test_a_datasets_folder_keeps_its_class_order(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["zebra", "ant"])}
    )
    part = datasets.Dataset.from_dict({"sentence": ["a", "b", "c", "d"], "label": [0, 1, 0, 1]}, features=features)
    datasets.DatasetDict({"train": part, "validation": part, "test": part}).save_to_disk(tmp_path / "d")
    data = read_dataset(DataSpec(dir=tmp_path / "d"))
    assert data.label_names == ("zebra", "ant")
    assert data.test.labels == (0, 1, 0, 1)
    assert read_split(tmp_path / "d", data.label_names) == data.test


def test_labels_are_sorted_names_or_ordered_numbers(tmp_path: Path) -> None:
    assert read_dataset(DataSpec(dir=folder(tmp_path / "n"))).label_names == ("greet", "leave")
    numbers = [("a", "10"), ("b", "2"), ("c", "10"), ("d", "2"), ("e", "-1")]
    data = read_dataset(DataSpec(dir=folder(tmp_path / "i", train=numbers, test=numbers)))
    assert data.label_names == ("-1", "2", "10")
    assert data.test.labels == (2, 1, 2, 1, 0)


def test_numbers_count_as_indices_where_names_are_words(tmp_path: Path) -> None:
    path = write(tmp_path / "e.tsv", [("a", "1"), ("b", "0")])
    assert read_split(path, ("negative", "positive")).labels == (1, 0)
    with pytest.raises(DataError, match=r"row 2: unknown label '1'"):
        read_split(path, ("0", "2"))


def test_pairs(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("sentence1\tsentence2\tlabel\na\tb\tx\nc\td\ty\n", encoding="utf-8")
    assert read_split(path, ("x", "y")).texts == (("a", "b"), ("c", "d"))
    assert read_split(path, ("x", "y"), text_column="sentence2").texts == ("b", "d")


def test_tsv_quotes_and_unicode_line_separators_are_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text('text\tlabel\r\n"half a quote\tx\r\none\u2028two\ty\r\n', encoding="utf-8", newline="")
    assert read_split(path, ("x", "y")).texts == ('"half a quote', "one\u2028two")


def test_a_missing_validation_split_is_carved_stratified_and_always_the_same(tmp_path: Path) -> None:
    rows = [(f"text {index}", "ab"[index % 2]) for index in range(100)]
    spec = DataSpec(dir=folder(tmp_path / "c", train=rows, test=[("q", "a"), ("r", "b")]))
    data = read_dataset(spec)
    assert (len(data.train), len(data.validation)) == (90, 10)
    assert data.validation.labels.count(0) == 5
    assert not set(data.train.texts) & set(data.validation.texts)
    assert read_dataset(spec) == data
    doubled = Split(("same", "same", "other", "third"), (0, 0, 0, 1))
    train, validation = carve_validation(doubled)
    assert not set(train.texts) & set(validation.texts)


def test_sentences(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("one\n\n two \n", encoding="utf-8")
    assert read_sentences(tmp_path / "s.txt") == ("one", "two")
    assert read_sentences(write(tmp_path / "s.tsv", ROWS)) == tuple(text for text, _ in ROWS)
    spec = DataSpec(dir=folder(tmp_path / "d"), sentences=tmp_path / "s.txt")
    assert read_dataset(spec).sentences == ("one", "two")


BAD = {
    "empty file": (b"", "holds no rows"),
    "header only": (b"text\tlabel\n", "holds no rows"),
    "bad utf-8": (b"text\tlabel\na\tx\nb\xff\ty\n", r"row 3: the byte 0xff is not UTF-8"),
    "cells": (b"text\tlabel\na\tx\nb\n", r"row 3: found 1 cells, expected 2"),
    "text column": (b"txt\tlabel\na\tx\n", r"columns txt, label; expected a text column"),
    "label column": (b"text\tlable\na\tx\n", r"no column 'label'.*did you mean 'lable'"),
    "label": (b"text\tlabel\na\tx\nb\tz\n", r"row 3: unknown label 'z'; expected one of x, y"),
    "no label": (b"text\tlabel\na\t\n", r"row 2: 'label' holds nothing"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_name_the_file_and_row(tmp_path: Path, name: str) -> None:
    content, message = BAD[name]
    path = tmp_path / "bad.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_split(path, ("x", "y"))
    assert "bad.tsv" in str(error.value)
    assert error.value.exit_code == 2
    assert error.value.remedy


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", 'text,label\n"a",x\n"b"c,y\n', "row 3"),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text"\n', "row 2: not valid JSON"),
        ("a.jsonl", '{"text": 5, "label": "x"}\n', r"row 1: 'text' holds int 5"),
        ("a.xlsx", "", "ending '.xlsx'"),
        ("a.parquet", "no parquet", "not a readable Parquet"),
    ],
)
def test_bad_rows_of_other_formats(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_split(tmp_path / name, ("x", "y"))


def test_one_class_missing_split_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one label 'a'"):
        read_dataset(DataSpec(dir=folder(tmp_path / "o", train=[("t", "a"), ("u", "a")])))
    (tmp_path / "o" / "test.tsv").unlink()
    with pytest.raises(DataError, match=r"holds no test data; found train\.tsv"):
        read_dataset(DataSpec(dir=tmp_path / "o"))
    with pytest.raises(DataError, match="does not exist"):
        read_split(tmp_path / "nothing.tsv", ("x", "y"))


def test_spec_takes_a_folder_or_files() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        DataSpec(dir=Path("d"), train=Path("t.tsv"))
    with pytest.raises(ValueError, match="both 'train' and 'test'"):
        DataSpec(train=Path("t.tsv"))
