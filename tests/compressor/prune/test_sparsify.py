import pytest
import torch
from pydantic import ValidationError

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError
from compressor.data.batches import encode_split
from compressor.models import load_compressed, unique_parameters
from compressor.prune.masks import check_pattern, masks_for
from compressor.prune.sparsify import Sparsify, SparsifyConfig, encoder_matrices, input_norms
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import FAMILIES
from tests.shrunk import logits_of


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loses_half_its_weights_two_of_four(family, checkpoint_of, tmp_path):
    source = checkpoint_of(family)
    facts = run_stage(Sparsify(SparsifyConfig(pattern="2:4")), context(tmp_path, source), tmp_path / "out")
    model = load_compressed(Checkpoint.open(tmp_path / "out"))
    for module in encoder_matrices(model).values():
        assert bool(((module.weight.reshape(-1, 4) != 0).sum(dim=1) <= 2).all())
    assert facts["sparsity"]["share"] >= 0.5
    assert unique_parameters(model) == facts["parameters"]["before"]
    assert torch.isfinite(logits_of(model, Checkpoint.open(tmp_path / "out"))).all()


def test_the_report_says_what_became_smaller_and_what_did_not(checkpoint_of, tmp_path):
    source = checkpoint_of("bert")
    facts = run_stage(Sparsify(SparsifyConfig(ratio=0.8)), context(tmp_path, source), tmp_path / "out")
    sizes = facts["bytes"]
    assert sizes["file_after"] == sizes["file_before"]
    assert sizes["compressed_after"] < 0.9 * sizes["compressed_before"]
    assert facts["sparsity"]["share"] == pytest.approx(0.8, abs=1e-4)
    assert facts["faster"].startswith("nothing")
    assert Checkpoint.open(tmp_path / "out").compression["history"][-1]["sparsity"] == facts["sparsity"]


def test_the_smallest_go_first_over_all_matrices_or_in_each():
    scores = {"a": torch.tensor([[1.0, 2.0], [3.0, 4.0]]), "b": torch.tensor([[5.0, 6.0], [7.0, 8.0]])}
    whole = masks_for(scores, pattern="unstructured", ratio=0.5, granularity="global")
    assert not whole["a"].any() and whole["b"].all()
    each = masks_for(scores, pattern="unstructured", ratio=0.5, granularity="matrix")
    assert each["a"].tolist() == each["b"].tolist() == [[False, False], [True, True]]
    blocks = masks_for(scores, pattern="2x1", ratio=0.25, granularity="global")
    assert blocks["a"].tolist() == [[False, True], [False, True]]
    assert masks_for(scores, pattern="2:4", ratio=0, granularity="global")["a"].all()  # two columns: stays whole


def test_inputs_decide_where_they_are_asked(checkpoint_of, tmp_path):
    source = checkpoint_of("bert")
    model = load_compressed(source)
    modules = encoder_matrices(model)
    data = encode_split(source, tiny_dataset(train=4).train, max_tokens=32)
    name = "bert.encoder.layer.0.output.dense"
    norms = input_norms(model, modules, data)[name]
    seen = []
    handle = modules[name].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0][0]))
    with torch.no_grad():
        for row in range(4):
            model(**data.inputs([row]))
    handle.remove()
    torch.testing.assert_close(norms, torch.cat(seen).square().sum(dim=0).sqrt(), rtol=1e-5, atol=1e-5)
    settings = SparsifyConfig(ratio=0.5, activations=True)
    facts = run_stage(Sparsify(settings), context(tmp_path, source), tmp_path / "out")
    assert facts["sparsity"]["share"] == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("pattern", ["4:2", "0:4", "1x1", "half", "2:4:8"])
def test_patterns_that_mean_nothing_are_refused(pattern):
    with pytest.raises(RecipeError, match="expected 'unstructured'"):
        check_pattern(pattern)


def test_a_ratio_belongs_to_patterns_without_one():
    for settings in ({}, {"pattern": "2:4", "ratio": 0.5}, {"pattern": "4x1"}):
        with pytest.raises(ValidationError):
            SparsifyConfig(**settings)


def test_a_ranking_over_all_matrices_is_refused_where_each_is_ranked_by_itself():
    with pytest.raises(ValidationError, match="ranks in each matrix"):
        SparsifyConfig(ratio=0.5, activations=True, by="global")
    assert SparsifyConfig(ratio=0.5, activations=True, by="matrix").activations
