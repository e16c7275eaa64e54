from dataclasses import replace

import pytest
from pydantic import ValidationError

from compressor.augment.config import AugmentConfig
from compressor.augment.rows import UNLABELLED, augmented_texts, read_rows, with_variants, write_rows
from compressor.augment.substitution import Substitution
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, ModelError
from compressor.data.dataset import Split
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.finetune import Finetune, FinetuneConfig
from compressor.pretrain.encoders import load_masked_language_model
from compressor.pretrain.pieces import Pieces
from compressor.text import load_tokenizer
from tests.compressor.pretrain.tiny import encoded, maskable
from tests.compressor.tiny_data import context, run_stage, tiny_dataset

TEXTS = ("where is my order", "please cancel, the order now!", "i want a refund", "", "!")


@pytest.fixture(scope="module", params=["bert", "roberta", "xlm-roberta"])
def source(request, tmp_path_factory):
    return maskable(tmp_path_factory.mktemp(request.param), family=request.param, form="masked")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return maskable(tmp_path_factory.mktemp("words"), form="masked")


def substitution(source, *, seed=0, **settings):
    config = AugmentConfig(model="-", **{"variants": 4, **settings})
    return Substitution(load_masked_language_model(source), source, config, seed=seed, max_tokens=64)


def test_variants_differ_repeat_and_replace_words_by_words(source):
    found = [*substitution(source).variants(TEXTS, len(TEXTS))]
    assert found == [*substitution(source).variants(TEXTS, len(TEXTS))]
    assert found != [*substitution(source, seed=1).variants(TEXTS, len(TEXTS))]
    assert 3 < len(found) <= 4 * 3, "texts without words have no variants"
    assert len(set(found)) == len(found)
    assert not set(found) & set(TEXTS)
    specials = [name for name in load_tokenizer(source.path).get_vocab() if name.startswith(("[", "<"))]
    for text in found:
        assert not any(special in text for special in specials)
        assert "##" not in text and "▁" not in text and "Ġ" not in text and "  " not in text
        assert [*map(_shape, text.split())] in [[*map(_shape, origin.split())] for origin in TEXTS[:3]]


def _shape(word):
    return word[-1] if word[-1] in ",!" else ""


def test_each_word_is_one_of_the_likeliest_at_its_masked_place(words):
    import torch

    model, pieces = load_masked_language_model(words), Pieces.load(words)
    tokenizer = load_tokenizer(words.path)
    text = "where is my order"
    allowed = []
    for place, own in enumerate(text.split(), start=1):
        inputs = encoded(words, [text]).inputs([0])
        inputs["input_ids"][0, place] = pieces.mask_id
        with torch.no_grad():
            logits = model.head(model.encoder(**inputs).last_hidden_state[0])[place]
        names = [tokenizer.id_to_token(index) for index in logits.argsort(descending=True).tolist()]
        likely = [name for name in names[:6] if name.isalpha() and name != own]
        allowed.append({own, *likely[:3]})
    found = [*substitution(words, variants=60, top_k=3, probability=1.0).variants([text], 1)]
    assert found
    for made in found:
        for word, options in zip(made.split(), allowed, strict=True):
            assert word in options, (word, options)


def test_the_number_of_rows_is_bounded_and_spread_over_the_texts(words):
    texts = tiny_dataset().train.texts
    few = [*substitution(words, variants=20, max_rows=30, probability=1.0).variants(texts, len(texts))]
    assert 20 < len(few) <= 30
    first, last = few[: len(few) // 2], few[len(few) // 2 :]
    lengths = [len(text.split()) for text in texts]
    assert len(first[0].split()) in lengths[:6]
    assert len(last[-1].split()) in lengths[-6:]


def test_texts_are_read_as_rows_are_asked_for(words):
    read = []

    def endless():
        while True:
            read.append(1)
            yield "where is my order please"

    rows = substitution(words, max_rows=10**9).variants(endless(), 10**6)
    assert all(next(rows) for _ in range(10))
    assert len(read) == 64


def test_a_word_of_several_pieces_is_replaced_whole(words):
    text = "ordermoon ordermoon"
    found = [*substitution(words, probability=1.0, variants=8).variants([text], 1)]
    assert found
    assert all(len(made.split()) == 2 and "moon" not in made for made in found)


def test_pairs_are_varied_in_both_parts(words):
    pair = ("where is my order", "it is late now")
    found = [*substitution(words, probability=0.9, variants=8).variants([pair], 1)]
    assert all(isinstance(made, tuple) and len(made) == 2 for made in found)
    assert any(made[0] != pair[0] and made[1] != pair[1] for made in found)


def test_rows_survive_a_file_which_is_whole_or_absent(tmp_path):
    rows = ("a\nb", ("c", "“d”"), "")
    write_rows(rows, tmp_path / "rows.jsonl")
    assert tuple(read_rows(tmp_path / "rows.jsonl")) == rows

    def broken():
        yield "one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(broken(), tmp_path / "cut.jsonl")
    assert not (tmp_path / "cut.jsonl").exists()


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    base = maskable(folder / "base")
    run_stage(Finetune(FinetuneConfig(epochs=8, lr=2e-3, batch_size=8)), context(folder, base), folder / "tuned")
    return Checkpoint.open(folder / "tuned")


def config(**more) -> DistillConfig:
    return DistillConfig.model_validate(
        {"epochs": 1, "lr": 2e-3, "batch_size": 16, "student": {"layers": 1}, "losses": [{"name": "logits"}], **more}
    )


def test_a_student_learns_from_texts_and_variants(teacher, words, tmp_path, monkeypatch):
    from compressor.distill import stage as module

    seen = {}
    monkeypatch.setattr(
        module, "train", lambda objective, data, *_, **__: seen.update(data=data, objective=objective) or {}
    )
    settings = config(augment={"model": str(words.path), "variants": 2, "max_rows": 50})
    where = context(tmp_path, teacher)
    facts = run_stage(Distill(settings), where, tmp_path / "out")
    own, data = len(where.data.train), seen["data"]
    assert 20 < facts["augmented_texts"] <= 50
    assert len(data) == own + facts["augmented_texts"]
    assert set(data.labels[own:]) == {UNLABELLED}
    wanted = seen["objective"]._teacher.batch([own, len(data) - 1]).logits
    assert wanted.isfinite().all(), "the teacher did not answer the variants"


def test_a_resumed_run_reads_the_variants_it_made(words, tmp_path, monkeypatch):
    settings = AugmentConfig(model="01-pretrain", variants=2)
    where = context(tmp_path, words, checkpoints={"01-pretrain": words})
    first = augmented_texts(settings, where, seed=0, max_tokens=64)
    monkeypatch.setattr(Substitution, "variants", lambda *_: pytest.fail("made again"))
    assert augmented_texts(settings, where, seed=0, max_tokens=64) == first
    split = with_variants(where.data.train, first)
    assert len(split) == len(where.data.train) + len(first)


def test_bad_inputs_are_named(teacher, words, tmp_path):
    augment = {"model": str(words.path)}
    with pytest.raises(ValidationError, match="needs true labels"):
        config(augment=augment, losses=[{"name": "logits"}, {"name": "labels"}])
    with pytest.raises(ModelError, match="no head that predicts masked words"):
        Distill(config(augment={"model": str(teacher.path)})).requires(context(tmp_path, teacher))
    with pytest.raises(ModelError, match="does not exist"):
        Distill(config(augment={"model": "./nowhere"})).check(teacher, ())
    Distill(config(augment={"model": "01-pretrain"})).check(teacher, ("01-pretrain",))
    where = context(tmp_path, teacher)
    blank = replace(where.data, train=Split(("", "!"), (0, 1)))
    with pytest.raises(DataError, match="none of the 2 training texts"):
        augmented_texts(AugmentConfig(**augment), replace(where, data=blank), seed=0, max_tokens=64)
