from pathlib import Path

from compressor.data.batches import encode_split, shuffled_batches, sorted_batches
from compressor.data.dataset import Split
from tests.models import tiny_checkpoint

LENGTHS = [(7 * index) % 40 + 2 for index in range(1000)]


def padding(batches: list[list[int]]) -> int:
    return sum(max(LENGTHS[i] for i in batch) - LENGTHS[j] for batch in batches for j in batch)


def test_every_sentence_once_in_an_order_of_seed_and_epoch() -> None:
    batches = shuffled_batches(LENGTHS, 8, seed=1, epoch=0)
    assert sorted(index for batch in batches for index in batch) == list(range(1000))
    assert batches == shuffled_batches(LENGTHS, 8, seed=1, epoch=0)
    assert batches != shuffled_batches(LENGTHS, 8, seed=1, epoch=1)
    assert batches != shuffled_batches(LENGTHS, 8, seed=2, epoch=0)


def test_batches_hold_sentences_of_like_length() -> None:
    plain = [list(range(start, start + 8)) for start in range(0, 1000, 8)]
    assert padding(shuffled_batches(LENGTHS, 8, seed=0, epoch=0)) < 0.15 * padding(plain)
    assert padding(sorted_batches(LENGTHS, 8)) < 0.05 * padding(plain)


def test_inputs_are_what_the_family_takes(tmp_path: Path) -> None:
    split = Split(("my order", "where is my card now " * 30, ""), (0, 1, 2))
    bert = encode_split(tiny_checkpoint("bert", tmp_path / "b"), split, max_tokens=16)
    assert set(bert.inputs([0, 1])) == {"input_ids", "attention_mask", "token_type_ids"}
    assert bert.inputs([0, 2])["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert (bert.truncated, max(bert.lengths)) == (1, 16)
    distilbert = encode_split(tiny_checkpoint("distilbert", tmp_path / "d"), split, max_tokens=500)
    assert set(distilbert.inputs([0])) == {"input_ids", "attention_mask"}
    assert max(distilbert.lengths) == 64
