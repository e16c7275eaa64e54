import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, ModelError, RecipeError
from compressor.core.folders import write_json
from compressor.data.dataset import Split
from compressor.families import adapter_for
from compressor.models import load_compressed, load_config
from compressor.share.factorize import Factorize, FactorizeConfig
from compressor.text import load_tokenizer
from compressor.trim.merges import MergeTable
from compressor.trim.rows import trim_rows
from compressor.trim.stage import Trim, TrimConfig
from compressor.trim.vocabulary import Vocabulary
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import FAMILIES
from tests.shrunk import logits_of
from tests.trimmable import KINDS, corpus, trimmable


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return {kind: trimmable(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_keeps_its_logits(family, checkpoint_of, tmp_path):
    source = checkpoint_of(family)
    texts = tiny_dataset().train.texts
    facts = run_stage(Trim(TrimConfig()), context(tmp_path, source), tmp_path / "out")
    made = Checkpoint.open(tmp_path / "out")
    assert facts["pieces"]["after"] < facts["pieces"]["before"]
    found, wanted = logits_of(load_compressed(made), made, texts), logits_of(load_compressed(source), source, texts)
    torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-6)
    assert facts["held_out"]["same_texts"] == 1.0  # the same few words


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_keeps_the_most_frequent_and_says_what_it_costs(kind, sources, tmp_path):
    source = sources[kind]
    texts = tuple(corpus(seed=2, count=300))
    split = Split(texts, tuple(index % 3 for index in range(len(texts))))
    where = replace(context(tmp_path, source), data=replace(tiny_dataset(), train=split, test=split))
    whole = run_stage(Trim(TrimConfig()), where, tmp_path / "whole")
    assert whole["held_out"]["kept_pieces"] > 0.99
    most = whole["pieces"]["after"] - 10
    facts = run_stage(Trim(TrimConfig(max_pieces=most)), where, tmp_path / "part")
    assert facts["pieces"]["after"] <= most
    assert 0.5 < facts["held_out"]["kept_pieces"] < 1.0
    assert facts["held_out"]["same_texts"] < 1.0
    with pytest.raises(RecipeError, match="would drop special tokens"):
        Trim(TrimConfig(max_pieces=5)).requires(where)


def test_padding_and_truncation_in_the_file_change_no_count(sources, tmp_path):
    """all-MiniLM-L6-v2 pads and cuts every text to 128 tokens by its tokenizer.json."""
    folder = shutil.copytree(sources["WordPiece"].path, tmp_path / "source")
    tokenizer = load_tokenizer(folder)
    tokenizer.enable_padding(length=8, pad_id=0, pad_token="[PAD]")
    tokenizer.enable_truncation(8)
    tokenizer.save(str(folder / "tokenizer.json"))
    source = Checkpoint.open(folder)
    texts = ("where is my order " * 5 + "strawberry", "card", "☃")
    split = Split(texts, (0, 1, 2))
    where = context(tmp_path, source, data=replace(tiny_dataset(), train=split, validation=split, test=split))
    facts = run_stage(Trim(TrimConfig(max_unknown=0.1)), where, tmp_path / "out")
    assert load_tokenizer(tmp_path / "out").encode("strawberry").tokens == ["[CLS]", "strawberry", "[SEP]"]
    assert facts["unknown_in_corpus"] == facts["held_out"]["unknown_before"] == pytest.approx(1 / 23)
    stated = json.loads((tmp_path / "out/tokenizer.json").read_text(encoding="utf-8"))
    assert (stated["padding"]["strategy"], stated["truncation"]["max_length"]) == ({"Fixed": 8}, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_a_script_stay_whatever_the_corpus_says(kind, sources, tmp_path):
    source = sources[kind]
    run_stage(Trim(TrimConfig()), context(tmp_path, source), tmp_path / "few")
    run_stage(Trim(TrimConfig(scripts=("cyrillic",))), context(tmp_path, source), tmp_path / "more")
    old, few, more = (load_tokenizer(it) for it in (source.path, tmp_path / "few", tmp_path / "more"))
    assert more.get_vocab_size() > few.get_vocab_size()
    assert more.encode("привет мир").tokens == old.encode("привет мир").tokens
    assert few.encode("привет мир").tokens != old.encode("привет мир").tokens
    with pytest.raises(RecipeError, match="did you mean 'latin'"):
        Trim(TrimConfig(scripts=("latn",))).requires(context(tmp_path, source))


def test_unknown_characters_cost_what_they_did(sources):
    """Unigram's unknown score hangs on its worst piece; without it, other paths would win."""
    vocabulary = Vocabulary.load(sources["Unigram"].path)
    scores = [score for _, score in vocabulary.document["model"]["vocab"]]
    assert scores.index(min(scores)) in vocabulary.required


def test_a_piece_brings_the_merges_that_build_it():
    ids = {piece: index for index, piece in enumerate(("a", "b", "c", "ab", "bc", "abc", "ca"))}
    table = MergeTable(["b c", "a b", "a bc", "c a"], ids)
    assert {*table.parts("abc")} == {ids[piece] for piece in ("a", "b", "c", "bc", "abc")}
    assert table.kept({"abc": 0}) == ["b c", "a bc"]
    assert table.parts("cab") == ()


def test_a_factorised_table_is_trimmed_by_its_rows(sources, tmp_path):
    source = sources["WordPiece"]
    run_stage(Factorize(FactorizeConfig(rank=8)), context(tmp_path, source), tmp_path / "thin")
    thin = Checkpoint.open(tmp_path / "thin")
    run_stage(Trim(TrimConfig()), context(tmp_path / "next", thin), tmp_path / "out")
    made = Checkpoint.open(tmp_path / "out")
    texts = tiny_dataset().train.texts
    assert made.compression["shape"] == thin.compression["shape"]
    assert torch.equal(logits_of(load_compressed(made), made, texts), logits_of(load_compressed(thin), thin, texts))


def test_a_head_over_the_vocabulary_follows(sources, tmp_path):
    source = sources["WordPiece"]
    config = load_config(source)
    weights = load_file(source.path / "model.safetensors")
    rows = config.vocab_size
    head = {"cls.predictions.bias": torch.arange(float(rows)), "cls.predictions.dense.weight": torch.rand(16, rows)}
    folder = tmp_path / "source"
    folder.mkdir()
    save_file({**weights, **head}, folder / "model.safetensors")
    write_json(folder / "config.json", source.config)
    (tmp_path / "out").mkdir()
    kept = (0, 1, 2, 3, 9, 7)
    trim_rows(Checkpoint.open(folder), config, adapter_for(config), kept, tmp_path / "out")
    found = load_file(tmp_path / "out/model.safetensors")
    assert found["cls.predictions.bias"].tolist() == [0, 1, 2, 3, 9, 7]
    assert torch.equal(found["cls.predictions.dense.weight"], head["cls.predictions.dense.weight"][:, list(kept)])
    assert found["bert.embeddings.word_embeddings.weight"].shape == (6, 32)
    assert torch.equal(found["classifier.weight"], weights["classifier.weight"])


def test_a_corpus_that_the_tokenizer_cannot_keep_is_refused(sources, tmp_path):
    file = tmp_path / "corpus.txt"
    where = context(tmp_path, sources["WordPiece"])
    for text, message in (("ελληνικά κείμενα εδώ\n" * 3, "are unknown"), ("\n", "holds no text")):
        file.write_text(text)
        with pytest.raises(DataError, match=message):
            Trim(TrimConfig(corpus=str(file))).requires(where)
    with pytest.raises(DataError, match="cannot be read"):
        Trim(TrimConfig(corpus=str(tmp_path / "none.txt"))).requires(where)


def test_tokenizers_that_cannot_be_trimmed_are_refused(sources, tmp_path):
    source = sources["WordPiece"]
    document = json.loads((source.path / "tokenizer.json").read_text())
    for change, message in (({"type": "WordLevel"}, "WordLevel tokenizer"), (None, "rows")):
        folder = tmp_path / message[:4]
        folder.mkdir()
        for name in ("config.json", "model.safetensors"):
            (folder / name).write_bytes((source.path / name).read_bytes())
        if change is None:
            write_json(folder / "config.json", {**source.config, "vocab_size": 50})
        write_json(folder / "tokenizer.json", {**document, "model": {**document["model"], **(change or {})}})
        with pytest.raises(ModelError, match=message):
            Trim(TrimConfig()).requires(context(tmp_path, Checkpoint.open(folder)))
