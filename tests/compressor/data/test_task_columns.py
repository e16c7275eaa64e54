import json

import pytest

from compressor.core.errors import DataError
from compressor.data.reader import read_sentences, read_split

TAGS = ("O", "B-X", "I-X")


def jsonl(tmp_path, *rows):
    file = tmp_path / "data.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def tsv(tmp_path, text):
    file = tmp_path / "data.tsv"
    file.write_text(text)
    return file


def test_pairs_of_texts(tmp_path):
    for header in ("text\ttext_pair", "sentence1\tsentence2", "premise\thypothesis"):
        split = read_split(tsv(tmp_path, f"{header}\tlabel\na b\tc\tyes\nd\te\tno\n"), ("yes", "no"))
        assert split.texts == (("a b", "c"), ("d", "e"))
        assert split.labels == (0, 1)


def test_several_labels_are_joined_by_commas_or_listed(tmp_path):
    task, names = "multi-label-classification", ("a", "b c", "d")
    expected = ((1.0, 1.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    listed = jsonl(tmp_path, {"text": "x", "labels": ["a", "b c"]}, {"text": "y", "labels": []},
                   {"text": "z", "labels": [2]})  # fmt: skip
    assert read_split(listed, names, task=task).labels == expected
    joined = tsv(tmp_path, "text\tlabels\nx\ta, b c\ny\t\nz\td\n")
    assert read_split(joined, names, task=task).labels == expected
    with pytest.raises(DataError, match="unknown label 'bc'") as error:
        read_split(tsv(tmp_path, "text\tlabels\nx\tbc\n"), names, task=task)
    assert "row 2" in error.value.message


@pytest.mark.parametrize("column", ["score", "label"])
def test_numbers(tmp_path, column):
    split = read_split(tsv(tmp_path, f"text\t{column}\nx\t1.5\ny\t-2\n"), (), task="regression")
    assert split.labels == (1.5, -2.0)
    with pytest.raises(DataError, match=r"row 2.*expected a number"):
        read_split(tsv(tmp_path, f"text\t{column}\nx\tnan\n"), (), task="regression")


def test_pairs_with_a_score(tmp_path):
    file = tsv(tmp_path, "sentence1\tsentence2\tscore\na\tb\t0.5\n")
    split = read_split(file, (), task="sentence-embedding")
    assert (split.texts, split.labels) == ((("a", "b"),), (0.5,))
    with pytest.raises(DataError, match="expected pairs"):
        read_split(tsv(tmp_path, "text\tscore\na\t1\n"), (), task="sentence-embedding")


def test_words_and_tags_are_lists_or_joined_by_spaces(tmp_path):
    expected = (("a b c",), ((0, 1, 2),))
    for file in (
        jsonl(tmp_path, {"tokens": ["a", "b", "c"], "ner_tags": [0, 1, 2]}),
        jsonl(tmp_path, {"tokens": ["a", "b", "c"], "tags": ["O", "B-X", "I-X"]}),
        tsv(tmp_path, "tokens\ttags\na b c\tO B-X I-X\n"),
    ):
        split = read_split(file, TAGS, task="token-classification")
        assert (split.texts, split.labels) == expected
        assert read_sentences(file) == ("a b c",)


@pytest.mark.parametrize(("row", "message"), [
    ({"tokens": ["a", "b"], "tags": ["O"]}, "2 words and 1 tags"),
    ({"tokens": ["a b"], "tags": ["O"]}, "'a b' holds a space"),
    ({"tokens": ["a"], "tags": ["B-Y"]}, "unknown label 'B-Y'"),
    ({"tokens": 3, "tags": ["O"]}, "expected a list or text"),
])  # fmt: skip
def test_rows_that_cannot_be_tagged_are_named(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        read_split(jsonl(tmp_path, row), TAGS, task="token-classification")


def test_questions_with_their_answers(tmp_path):
    rows = (
        {"question": "q", "context": "in the red box", "answer": "red", "answer_start": 7},
        {"question": "q", "context": "in the red box", "answers": {"text": ["red", "the red"], "answer_start": [7, 3]}},
        {"question": "q", "context": "in the red box", "answers": {"text": [], "answer_start": []}},
    )
    assert read_split(jsonl(tmp_path, rows[0]), (), task="question-answering").labels == (("red",),)
    split = read_split(jsonl(tmp_path, *rows[1:]), (), task="question-answering")
    assert split.texts[0] == ("q", "in the red box")
    assert split.labels == (("red", "the red"), ())
    with pytest.raises(DataError, match="the context holds 'the' at 3; the answer is 'red'"):
        read_split(jsonl(tmp_path, {**rows[0], "answer_start": 3}), (), task="question-answering")
