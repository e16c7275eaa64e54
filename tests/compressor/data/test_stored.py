import pickle
from pathlib import Path

import pytest

from compressor.data.reader import DataSpec, read_dataset
from compressor.data.stored import StoredTexts, StoredTokens
from compressor.text import Encoded

TEXTS = ("a", "", "zwölf\u2028 Boxkämpfer\n", ("first", ""), ("", "second"), "\0", ("one\0", "\x002"), "x" * 5000)


def test_texts_come_back_as_they_were(tmp_path: Path) -> None:
    stored = StoredTexts(iter(TEXTS), tmp_path)
    assert tuple(stored) == TEXTS
    assert (len(stored), stored[-1], stored[2:5], stored[::3]) == (8, TEXTS[-1], TEXTS[2:5], TEXTS[::3])
    assert stored == TEXTS
    assert stored != TEXTS[:-1]
    assert pickle.loads(pickle.dumps(stored)) == TEXTS
    with pytest.raises(IndexError):
        stored[8]
    assert not [*tmp_path.iterdir()], "the file has a name, so a killed run would leave it"


def test_tokens_come_back_as_they_were() -> None:
    items = [Encoded((101, 30521, 102), (0, 0, 1), False), Encoded((101,), (0,), True), Encoded((), (), False)]
    stored = StoredTokens(items)
    assert list(stored) == items
    assert list(stored.lengths) == [3, 1, 0]
    assert all(type(number) is int for number in stored[0].ids)


def test_training_text_is_in_a_file_and_counts_the_same(tmp_path: Path) -> None:
    for name in ("train", "test"):
        rows = [f"text {name} {index}\t{'ab'[index % 2]}" for index in range(40)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    data = read_dataset(DataSpec(dir=tmp_path))
    assert isinstance(data.train.texts, StoredTexts)
    assert (len(data.train), len(data.validation)) == (36, 4)
    assert {*data.train.texts, *data.validation.texts} == {f"text train {index}" for index in range(40)}
    again = read_dataset(DataSpec(dir=tmp_path))
    assert again.hash == data.hash
    (tmp_path / "train.tsv").write_text((tmp_path / "train.tsv").read_text().replace("train 7", "train seven"))
    assert read_dataset(DataSpec(dir=tmp_path)).hash != data.hash
