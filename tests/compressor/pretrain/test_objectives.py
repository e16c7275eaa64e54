import math
from collections import Counter

import numpy as np
import pytest
import torch

from compressor.core.errors import DataError
from compressor.families import adapter_for
from compressor.pretrain.config import GeneratorSettings, MaskSettings
from compressor.pretrain.encoders import encoder_of, load_any, load_masked_language_model
from compressor.pretrain.heads import masked_head
from compressor.pretrain.held_out import masked_words
from compressor.pretrain.masking import MaskedBatch, Masks
from compressor.pretrain.objectives.mlm import masked_loss
from compressor.pretrain.objectives.rtd import Generator, ReplacedTokens, corrupted, sampled
from compressor.pretrain.objectives.sop import SentenceOrder, consecutive, segments
from compressor.pretrain.pieces import Pieces
from tests.compressor.pretrain.tiny import encoded

TEXTS = ("where is my order", "please cancel the order now", "i want a refund of the money please", "")


@pytest.fixture(scope="module")
def source(maskable_of):
    return maskable_of(form="masked")


@pytest.fixture(scope="module")
def masks(source):
    return Masks(pieces=Pieces.load(source), settings=MaskSettings(share=0.4), seed=0)


def test_the_loss_is_that_of_a_slow_reference(source, masks):
    model = load_masked_language_model(source)
    data = encoded(source, TEXTS)
    batch = masks.hide(data.inputs(range(4)), range(4), epoch=2)
    found = masked_loss(model.encoder, model.head, batch)
    values = []
    for row, column, target in zip(batch.rows, batch.columns, batch.targets, strict=True):
        length = data.lengths[row]
        alone = {name: tensor[row : row + 1, :length] for name, tensor in batch.inputs.items()}
        with torch.no_grad():
            logits = model.head(model.encoder(**alone).last_hidden_state[0])
        scores = logits[column].double()
        values.append(float(torch.log(torch.exp(scores - scores.max()).sum()) + scores.max() - scores[target]))
    assert found.item() == pytest.approx(np.mean(values), rel=1e-5)


def test_the_gradient_is_that_of_finite_differences(source, masks):
    model = load_masked_language_model(source)
    encoder, head = model.encoder.double(), model.head.double()
    data = encoded(source, TEXTS)
    batch = masks.hide(data.inputs(range(4)), range(4), epoch=0)
    table = encoder.embeddings.word_embeddings.weight
    where = (int(batch.targets[0]), 3)  # looked up by the encoder, and a row of the tied decoder

    def value():
        return masked_loss(encoder, head, batch)

    value().backward()
    step = 1e-3
    with torch.no_grad():
        table[where] += step
        above = float(value())
        table[where] -= 2 * step
        below = float(value())
    assert float(table.grad[where]) == pytest.approx((above - below) / (2 * step), rel=1e-2, abs=1e-5)


def test_a_batch_that_hides_nothing_costs_nothing(source, masks):
    model = load_masked_language_model(source)
    loss = masked_loss(model.encoder, model.head, masks.hide(encoded(source, TEXTS).inputs([3]), [3], epoch=0))
    loss.backward()
    assert loss.item() == 0


def test_pseudo_perplexity_is_that_of_words_hidden_one_by_one(source):
    model, pieces = load_masked_language_model(source), Pieces.load(source)
    data = encoded(source, TEXTS)
    found = masked_words(model.encoder, model.head, data, pieces, most=1000, seed=0)
    losses, right = [], []
    for item in data.encoded:
        for place, target in enumerate(item.ids):
            if pieces.special[target]:
                continue
            ids = torch.tensor([item.ids])
            ids[0, place] = pieces.mask_id
            with torch.no_grad():
                states = model.encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
                scores = torch.log_softmax(model.head(states[0])[place].double(), dim=-1)
            losses.append(-float(scores[target]))
            right.append(int(scores.argmax()) == target)
    assert found["tokens"] == len(losses)
    assert found["pseudo_perplexity"] == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    assert found["masked_accuracy"] == pytest.approx(np.mean(right))
    few = masked_words(model.encoder, model.head, data, pieces, most=5, seed=0)
    assert few["tokens"] == 5
    assert few == masked_words(model.encoder, model.head, data, pieces, most=5, seed=0)
    with pytest.raises(DataError, match="no validation text"):
        masked_words(model.encoder, model.head, encoded(source, ["", ""]), pieces, most=5, seed=0)


def test_replaced_tokens_are_labelled_even_where_the_guess_is_right():
    ids = torch.tensor([[2, 9, 9, 7, 3], [2, 9, 3, 0, 0]])
    batch = MaskedBatch(
        {"input_ids": ids, "attention_mask": (ids > 0).long()},
        torch.tensor([0, 0, 1]), torch.tensor([1, 2, 1]), torch.tensor([5, 6, 8]), torch.zeros(3, dtype=torch.float64),
    )  # fmt: skip
    made = corrupted(batch, torch.tensor([5, 4, 1]))
    assert made.inputs["input_ids"].tolist() == [[2, 5, 4, 7, 3], [2, 1, 3, 0, 0]]
    assert made.replaced.tolist() == [[0, 0, 1, 0, 0], [0, 1, 0, 0, 0]]
    assert batch.inputs["input_ids"].tolist() == ids.tolist()


def test_guesses_are_drawn_from_the_softmax():
    logits = torch.log(torch.tensor([[0.5, 0.2, 0.3]])).expand(3000, 3)
    found = Counter(sampled(logits, torch.linspace(0, 1, 3001, dtype=torch.float64)[:-1]).tolist())
    assert [found[index] / 3000 for index in range(3)] == pytest.approx([0.5, 0.2, 0.3], abs=1e-3)
    assert sampled(logits[:1], torch.tensor([0.99999999999999])).tolist() == [2]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "mobilebert", "deberta-v2"])
def test_replaced_token_detection_trains_both_models_through_one_table(family, maskable_of):
    source = maskable_of(family)
    model = load_any(source)
    encoder = encoder_of(model)
    table = adapter_for(model.config).word_embedding(model)
    generator = Generator(model.config, table, GeneratorSettings(width=0.5, layers=1))
    data = encoded(source, TEXTS)
    settings = MaskSettings(mask_share=1.0, random_share=0.0)
    objective = ReplacedTokens(
        encoder, generator, Masks(pieces=Pieces.load(source), settings=settings, seed=0), width=32, weight=50.0,
        data=data, held_out=data, held_out_tokens=100,
    )  # fmt: skip
    names = [name for name, parameter in objective.named_parameters() if parameter is table.weight]
    assert len(names) == 1
    losses = objective.eval()(data.inputs(range(4)), torch.zeros(4), range(4))
    assert losses.keys() == objective.weights.keys() == {"generator", "rtd"}
    assert objective.total(losses).item() == pytest.approx((losses["generator"] + 50 * losses["rtd"]).item(), rel=1e-5)
    lengths = [data.lengths[row] for row in range(4)]
    hidden = len(objective._masks.hide(data.inputs(range(4)), range(4), 0).targets)
    assert objective.units(range(4), lengths) == {"generator": hidden, "rtd": sum(lengths)}
    losses["rtd"].backward()
    assert all(parameter.grad is None for parameter in generator.parameters()), "a gradient came through the sampling"
    assert table.weight.grad is not None
    table.weight.grad = None
    objective(data.inputs(range(4)), torch.zeros(4), range(4))["generator"].backward()
    assert table.weight.grad is not None
    assert generator.encoder.config.hidden_size == 16
    found = objective.measure()
    assert found["tokens"] == sum(data.lengths)
    assert 0 < found["replaced_share"] < 0.5
    assert found == objective.measure()


def test_a_text_is_cut_between_sentences_else_between_words():
    assert segments("where is it? it is late. pay now") == ("where is it?", "it is late. pay now")
    assert segments("  a bb ccc dddd ") == ("a bb", "ccc dddd")
    assert segments("one") is segments("") is None
    assert list(consecutive([("my card", "it"), "one", "pay now"])) == [("my", "card"), ("pay", "now")]


def test_half_of_the_pairs_are_swapped_and_labelled_so(maskable_of):
    source = maskable_of()
    pairs = list(
        consecutive([f"{first} {second} card order now" for first in ("the", "a", "my") for second in "abcdefgh"])
    )
    back = [(second, first) for first, second in pairs]
    model = load_any(source)
    head, _ = masked_head(model, None)
    ordered, swapped = encoded(source, pairs), encoded(source, back)
    masks = Masks(pieces=Pieces.load(source), settings=MaskSettings(), seed=0)
    objective = SentenceOrder(
        encoder_of(model), head, masks, data=ordered, swapped=swapped, held_out=ordered, held_out_swapped=swapped,
        held_out_tokens=50, width=32,
    )  # fmt: skip
    rows = range(len(pairs))
    answers = []
    for epoch in range(4):
        objective.epoch = epoch
        inputs, labels = objective.ordered(ordered.inputs(rows), rows)
        for row in rows:
            wanted = (swapped if labels[row] else ordered).encoded[row]
            length = len(wanted)
            assert inputs["input_ids"][row, :length].tolist() == list(wanted.ids)
            assert inputs["token_type_ids"][row, :length].tolist() == list(wanted.type_ids)
            assert inputs["attention_mask"][row].sum() == length
        answers.append(labels)
    assert not torch.equal(answers[0], answers[1])
    assert 0.3 < torch.stack(answers).float().mean() < 0.7
    objective.eval()
    losses = objective(ordered.inputs(rows), torch.zeros(len(rows)), rows)
    parts = [range(0, 7), range(7, len(rows))]
    units = [objective.units(part, [0] * len(part)) for part in parts]
    assert units[0]["sop"] == 7
    shares = [objective(ordered.inputs(part), torch.zeros(len(part)), part) for part in parts]
    for name, whole in losses.items():
        together = sum(share[name].item() * unit[name] for share, unit in zip(shares, units, strict=True))
        assert together / sum(unit[name] for unit in units) == pytest.approx(whole.item(), rel=1e-4)
    assert losses.keys() == {"mlm", "sop"}
    assert 0 <= objective.measure()["sop_accuracy"] <= 1
