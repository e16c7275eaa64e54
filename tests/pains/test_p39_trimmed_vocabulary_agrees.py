"""P39: after trimming, tokenizer and model agree to the row, and every kept text gives the same pieces and logits."""

import json

import pytest
import torch
from transformers import AutoTokenizer

from compressor.core.checkpoint import Checkpoint
from compressor.models import load_compressed
from compressor.text import load_tokenizer
from compressor.trim.stage import Trim, TrimConfig
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.shrunk import logits_of
from tests.trimmable import KINDS, trimmable


@pytest.fixture(scope="module")
def trimmed(tmp_path_factory):
    """For each kind: the checkpoint before and after, and the stage's facts."""
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        source = trimmable(kind, folder / "source")
        (source.path / "vocab.txt").write_text("stale\n")
        (source.path / "sentencepiece.bpe.model").write_bytes(b"stale")
        source = Checkpoint.open(source.path)
        facts = run_stage(Trim(TrimConfig()), context(folder, source), folder / "out")
        made[kind] = source, Checkpoint.open(folder / "out"), facts
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_kept_texts_give_the_same_pieces_and_through_the_map_the_same_logits(kind, trimmed):
    source, made, facts = trimmed[kind]
    assert facts["pieces"]["after"] < 0.8 * facts["pieces"]["before"]
    kept = made.compression["vocabulary"]["kept"]
    before, after = load_tokenizer(source.path), load_tokenizer(made.path)
    texts = (*tiny_dataset().train.texts, "the <order> card now", "")
    for text in (*texts, (texts[0], texts[1])):
        pair = text if isinstance(text, tuple) else (text,)
        old, new = before.encode(*pair), after.encode(*pair)
        assert old.tokens == new.tokens
        assert old.ids == [kept[index] for index in new.ids]
    found, wanted = logits_of(load_compressed(made), made, texts), logits_of(load_compressed(source), source, texts)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_pieces_and_config_are_one_number_and_specials_stay(kind, trimmed):
    source, made, facts = trimmed[kind]
    rows = load_compressed(made).get_input_embeddings().weight.shape[0]
    tokenizer = load_tokenizer(made.path)
    assert rows == tokenizer.get_vocab_size() == made.config["vocab_size"] == facts["pieces"]["after"]
    assert sorted(tokenizer.get_vocab().values()) == list(range(rows))
    old = load_tokenizer(source.path)
    for key in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if source.config.get(key) is not None and old.id_to_token(source.config[key]) is not None:
            assert tokenizer.id_to_token(made.config[key]) == old.id_to_token(source.config[key])
    assert "<order>" in tokenizer.get_vocab()


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_own_tokenizer_agrees_and_no_stale_file_is_left(kind, trimmed):
    source, made, _ = trimmed[kind]
    theirs, ours = AutoTokenizer.from_pretrained(made.path), load_tokenizer(made.path)
    for text in tiny_dataset().train.texts[:20]:
        assert theirs(text)["input_ids"] == ours.encode(text).ids
    before = AutoTokenizer.from_pretrained(source.path)
    assert theirs.pad_token == before.pad_token and len(theirs) == made.config["vocab_size"]
    assert theirs.pad_token_id == made.config["pad_token_id"]
    assert not (made.path / "sentencepiece.bpe.model").exists()
    if (made.path / "vocab.txt").exists():
        assert (made.path / "vocab.txt").read_text().splitlines() == sorted(
            json.loads((made.path / "tokenizer.json").read_text())["model"]["vocab"],
            key=ours.token_to_id,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_shrinks_by_the_arithmetic(kind, trimmed):
    source, made, facts = trimmed[kind]
    gone = facts["pieces"]["before"] - facts["pieces"]["after"]
    assert facts["parameters"]["before"] - facts["parameters"]["after"] == 32 * gone
    assert abs(source.size_bytes - made.size_bytes - 4 * 32 * gone) < 200


def test_a_second_trimming_maps_to_the_first_ids(trimmed, tmp_path):
    source, made, _ = trimmed["WordPiece"]
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("cancel my order\nwhere is the card\n")
    where = context(tmp_path, made)
    run_stage(Trim(TrimConfig(corpus=str(corpus))), where, tmp_path / "out")
    again = Checkpoint.open(tmp_path / "out")
    kept = again.compression["vocabulary"]["kept"]
    before, after = load_tokenizer(source.path), load_tokenizer(again.path)
    assert len(kept) < len(made.compression["vocabulary"]["kept"])
    assert [kept[index] for index in after.encode("cancel my card").ids] == before.encode("cancel my card").ids
    assert [step["stage"] for step in again.compression["history"]] == ["trim", "trim"]
