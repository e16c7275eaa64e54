import numpy as np
import pytest
import torch

from compressor.core.errors import ModelError
from compressor.pretrain.config import MaskSettings, PretrainConfig
from compressor.pretrain.masking import Masks, hidden_places
from compressor.pretrain.pieces import Pieces
from compressor.text import load_tokenizer
from tests.compressor.pretrain.tiny import encoded
from tests.models import tiny_checkpoint
from tests.trimmable import corpus


@pytest.fixture(scope="module")
def source(maskable_of):
    return maskable_of()


@pytest.fixture(scope="module")
def pieces(source):
    return Pieces.load(source)


def masked(source, settings, *, texts, epoch=0, seed=0, indices=None):
    data = encoded(source, texts)
    indices = range(len(texts)) if indices is None else indices
    inputs = data.inputs(list(indices))
    return inputs, Masks(pieces=Pieces.load(source), settings=settings, seed=seed).hide(inputs, indices, epoch)


def test_the_shares_are_those_of_bert(source, pieces):
    clean, batch = masked(source, MaskSettings(), texts=corpus(seed=3, count=3000))
    real = clean["attention_mask"].bool() & ~torch.from_numpy(pieces.special[clean["input_ids"]])
    lengths = real.sum(dim=1)
    wanted = [max(1, round(0.15 * length)) if length else 0 for length in lengths.tolist()]
    assert np.array_equal(np.bincount(batch.rows, minlength=3000), wanted)
    assert torch.equal(batch.targets, clean["input_ids"][batch.rows, batch.columns])
    assert not pieces.special[batch.targets].any()
    now = batch.inputs["input_ids"][batch.rows, batch.columns]
    shares = {
        "mask": (now == pieces.mask_id).float().mean(),
        "same": (now == batch.targets).float().mean(),
    }
    assert shares["mask"] == pytest.approx(0.8, abs=0.02)
    assert shares["same"] == pytest.approx(0.1, abs=0.02)  # a random piece is the same one in a few hundred
    assert not pieces.special[now[now != pieces.mask_id]].any()
    untouched = torch.ones_like(clean["input_ids"], dtype=torch.bool)
    untouched[batch.rows, batch.columns] = False
    assert torch.equal(clean["input_ids"][untouched], batch.inputs["input_ids"][untouched])
    assert torch.equal(clean["attention_mask"], batch.inputs["attention_mask"])
    assert batch.draws.min() >= 0 and batch.draws.max() < 1


def test_dynamic_masks_differ_between_epochs_and_static_ones_do_not(source):
    texts = corpus(seed=4, count=50)
    found = {}
    for masking in ("dynamic", "static"):
        for epoch in (0, 1):
            found[masking, epoch] = masked(source, MaskSettings(masking=masking), texts=texts, epoch=epoch)[1]
    assert not torch.equal(found["dynamic", 0].columns, found["dynamic", 1].columns)
    for name in ("rows", "columns", "targets", "draws"):
        assert torch.equal(getattr(found["static", 0], name), getattr(found["static", 1], name))
    assert torch.equal(found["static", 0].inputs["input_ids"], found["static", 1].inputs["input_ids"])
    other = masked(source, MaskSettings(masking="static"), texts=texts, seed=1)[1]
    assert not torch.equal(other.columns, found["static", 0].columns)


def test_what_is_hidden_does_not_depend_on_the_batch(source):
    texts = corpus(seed=5, count=20)
    together = masked(source, MaskSettings(), texts=texts, epoch=3)[1]
    alone = masked(source, MaskSettings(), texts=texts, epoch=3, indices=[7])[1]
    assert torch.equal(alone.columns, together.columns[together.rows == 7])
    width = alone.inputs["input_ids"].shape[1]
    assert torch.equal(alone.inputs["input_ids"][0], together.inputs["input_ids"][7, :width])


@pytest.mark.parametrize(
    ("family", "text", "words"),
    [
        ("bert", "where is ordermoon, strawberry!", ["where", "is", "ordermoon", ",", "strawberry", "!"]),
        ("roberta", "where is ordermoon, strawberry!", ["where", "is", "ordermoon", ",", "strawberry", "!"]),
        ("xlm-roberta", "where is ordermoon strawberry", ["where", "is", "ordermoon", "strawberry"]),
    ],
)
def test_words_are_those_of_each_kind_of_tokenizer(family, text, words, maskable_of):
    source = maskable_of(family)
    tokenizer = load_tokenizer(source.path)
    encoding = tokenizer.encode(text)
    found = Pieces.load(source).words(encoding.ids)
    spelled = [text[encoding.offsets[word[0]][0] : encoding.offsets[word[-1]][1]].strip() for word in found]
    assert spelled == words
    assert max(map(len, found)) > 1, "no word of several pieces was tried"


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta"])
def test_whole_words_are_hidden_whole(family, maskable_of):
    source = maskable_of(family)
    pieces = Pieces.load(source)
    texts = [f"{text} ordermoon moneyord {text}" for text in corpus(seed=6, count=80)]
    data = encoded(source, texts)
    parted = 0
    for index in range(len(texts)):
        ids = np.array(data.encoded[index].ids)
        draw = np.random.default_rng(index)
        chosen = set(hidden_places(ids, pieces, draw, share=0.3, whole_word=True).tolist())
        assert chosen
        for word in pieces.words(ids):
            assert chosen.issuperset(word) or chosen.isdisjoint(word)
            parted += len(word) > 1 and chosen.issuperset(word)
        again = np.random.default_rng(index)
        pieces_alone = hidden_places(ids, pieces, again, share=0.3, whole_word=False)
        assert len(chosen) <= max(len(pieces_alone), max(map(len, pieces.words(ids))))
    assert parted, "no word of several pieces was hidden"


def test_a_text_without_words_hides_nothing(source):
    _, batch = masked(source, MaskSettings(), texts=["", "where"])
    assert batch.rows.tolist() == [1]


def test_a_tokenizer_without_a_mask_token_is_refused(tmp_path):
    with pytest.raises(ModelError, match="no mask token"):
        Pieces.load(tiny_checkpoint("bert", tmp_path))


def test_shares_beyond_one_are_refused():
    with pytest.raises(ValueError, match="more than 1"):
        PretrainConfig(mask_share=0.9, random_share=0.2)
