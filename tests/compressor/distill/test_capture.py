"""Queries, keys and values as each family computes them, whatever attention implementation runs."""

from pathlib import Path

import pytest
import torch

from compressor.distill.capture import run_model
from compressor.distill.losses.relations import relation
from compressor.distill.outputs import model_shape
from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.prune.surgery import keep_heads
from compressor.shapes import shape_of
from compressor.share.layers import share_layers
from tests.compressor.distill.test_teacher import INDICES, split
from tests.models import FAMILIES, tiny_checkpoint


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_the_model_attends_by(family: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(family, tmp_path, layers=3)
    model, inputs = load_compressed(checkpoint.path), split(checkpoint).inputs(INDICES)
    with torch.no_grad():
        found = run_model(model, inputs, [1], [0, 2])
        attentions = model(**inputs, output_attentions=True).attentions
    assert set(found.projections) == {0, 2}
    mask, shape = inputs["attention_mask"], model_shape(model.config)
    assert shape == model_shape(model.config, shape_of(model))
    for layer, (query, key, value) in found.projections.items():
        assert query.shape == key.shape == value.shape == (*mask.shape, shape.attention_width(layer))
        scores = relation(query, key, mask, heads=shape.heads[layer])
        ours = scores.masked_fill(~mask.bool()[:, None, None, :], -1e9).softmax(dim=-1)
        difference = (ours - attentions[layer]).abs().transpose(1, 2)[mask.bool()].max()
        assert (difference < 1e-5) == shape.plain_scores
    assert shape.plain_scores == (family != "deberta-v2")


@pytest.mark.parametrize("family", ["bert", "albert", "distilbert", "mobilebert"])
def test_a_fused_kernel_gives_the_same_and_nothing_stays_hooked(family: str, tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint(family, tmp_path)
    inputs = split(checkpoint).inputs(INDICES)
    models = [load_compressed(checkpoint.path, attention=kind) for kind in ("eager", "sdpa")]
    with torch.no_grad():
        eager, fused = (run_model(model, inputs, (), [0, 1]).projections for model in models)
    real = inputs["attention_mask"].bool()
    for layer in (0, 1):
        for ours, theirs in zip(eager[layer], fused[layer], strict=True):
            assert torch.allclose(ours[real], theirs[real], atol=1e-5)
    for module in models[1].modules():
        adapter = adapter_for(models[1].config)
        if any(module is one for layer in adapter.applied_layers(models[1]) for one in adapter.query_key_value(layer)):
            assert not module._forward_hooks


def test_gradients_reach_the_projections(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("bert", tmp_path)
    model = load_compressed(checkpoint.path)
    run_model(model, split(checkpoint).inputs(INDICES), (), [1]).projections[1].value.sum().backward()
    assert model.bert.encoder.layer[1].attention.self.value.weight.grad is not None
    assert model.bert.encoder.layer[0].attention.self.query.weight.grad is not None


def test_shared_layers_are_seen_at_each_depth_and_uneven_ones_with_their_heads(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("bert", tmp_path, layers=4)
    model, inputs = load_compressed(checkpoint.path), split(checkpoint).inputs(INDICES)
    share_layers(model, (0, 0, 1, 1), init="best")
    adapter = adapter_for(model.config)
    keep_heads(adapter, model.bert.encoder.layer[2], [0, 3], head_size=8)
    shape = model_shape(model.config, shape_of(model))
    assert (shape.heads, shape.head_size) == ((4, 4, 2, 2), 8)
    with torch.no_grad():
        found = run_model(model, inputs, range(4), range(4))
    for layer in range(4):
        query = adapter.query_key_value(adapter.applied_layers(model)[layer])[0]
        assert torch.equal(found.projections[layer].query, query(found.hidden_states[layer]))
    assert not torch.equal(found.projections[0].query, found.projections[1].query)
