"""Smoothing moves outliers into weights, changes nothing else, and is kept only where it helps."""

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from compressor.core.errors import StageError
from compressor.models import load_compressed
from compressor.quantize import smooth as module
from compressor.quantize.smooth import Pair, pairs_of, product_error, smooth
from tests.compressor.quantize.test_rounding import batches_of
from tests.models import FAMILIES, tiny_checkpoint, tiny_config


def with_outliers(checkpoint):
    """Three channels of every value projection far above the others, as trained encoders have them."""
    model = load_compressed(checkpoint.path)
    with torch.no_grad():
        for pair in pairs_of(model):
            producer, consumer = model.get_submodule(pair.producer), model.get_submodule(pair.consumer)
            rows = (slice(3), slice(None)) if producer.weight.dim() == 2 else (slice(3),)
            producer.weight[rows] *= 100
            producer.bias[:3] += 10
            consumer.weight[:, :3] /= 100
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_smoothed_exactly(tmp_path, family):
    checkpoint = tiny_checkpoint(family, tmp_path)
    model, batches = with_outliers(checkpoint), batches_of(checkpoint)
    with torch.no_grad():
        before = [model(**batch).logits for batch in batches]
    found = smooth(model, batches, strength=0.5, levels=127)
    with torch.no_grad():
        after = [model(**batch).logits for batch in batches]
    torch.testing.assert_close(torch.cat(after), torch.cat(before), rtol=0, atol=1e-4)
    assert any(pair.kept for pair in found)
    assert all(pair.kept == (pair.error_after < pair.error_before) for pair in found)
    assert min(pair.error_after / pair.error_before for pair in found) < 0.5


def test_pairs_are_those_that_the_architecture_allows(tmp_path):
    def pairs(family, layers):
        return pairs_of(load_compressed(tiny_checkpoint(family, tmp_path / family, layers=layers).path))

    value, output = "bert.encoder.layer.{}.attention.self.value", "bert.encoder.layer.{}.attention.output.dense"
    assert pairs("bert", 2) == tuple(Pair(value.format(i), output.format(i)) for i in (0, 1))
    shared = pairs("albert", 3)  # one stored layer: once, however often it is applied
    assert [pair.producer.rpartition(".")[2] for pair in shared] == ["value", "LayerNorm"]
    assert shared[1].consumer == "albert.encoder.embedding_hidden_mapping_in"
    assert Pair("electra.embeddings.LayerNorm", "electra.embeddings_project") in pairs("electra", 1)
    assert any(pair.consumer.endswith("layer.0.output.dense") for pair in pairs("mobilebert", 1))  # ReLU


def test_what_does_not_help_is_left_alone(tmp_path):
    checkpoint = tiny_checkpoint("bert", tmp_path)
    model, before = load_compressed(checkpoint.path), load_compressed(checkpoint.path)
    found = smooth(model, batches_of(checkpoint), strength=1.0, levels=127)
    for pair in found:
        same = torch.equal(model.get_submodule(pair.producer).weight, before.get_submodule(pair.producer).weight)
        assert same != pair.kept


def test_a_pair_that_is_none_is_noticed(tmp_path, monkeypatch):
    checkpoint = tiny_checkpoint("bert", tmp_path)
    layer = "bert.encoder.layer.0"
    wrong = Pair(f"{layer}.attention.output.LayerNorm", f"{layer}.intermediate.dense")  # also the residual
    monkeypatch.setattr(module, "pairs_of", lambda _: (wrong,))
    model = load_compressed(checkpoint.path)
    with torch.no_grad():
        model.get_submodule(wrong.producer).weight[:2] *= 50
    with pytest.raises(StageError, match="smoothing moved the logits"):
        smooth(model, batches_of(checkpoint), strength=0.5, levels=127)


def test_the_measured_error_is_that_of_integers():
    generator = torch.Generator().manual_seed(0)
    values, weight = torch.randn(64, 16, generator=generator), torch.randn(8, 16, generator=generator)
    fine = product_error(values, weight, 127)
    assert 0 < fine < 0.02
    values[0, 0] = 1000.0
    assert product_error(values, weight, 127) > 3 * fine
    assert product_error(torch.zeros(4, 16), weight, 127) == 0.0


def test_every_group_of_shared_layers_has_its_pairs():
    config = tiny_config("albert", layers=4)
    config.num_hidden_groups = 2
    model = AutoModelForSequenceClassification.from_config(config)
    groups = {pair.consumer.split(".")[3] for pair in pairs_of(model) if "albert_layer_groups" in pair.consumer}
    assert groups == {"0", "1"}
