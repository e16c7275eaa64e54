import pytest
import torch
from pydantic import ValidationError

from compressor.core.errors import RecipeError
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.distill.students import NewStudent
from compressor.distill.students.new import narrowed
from compressor.distill.students.presets import PRESETS
from compressor.families import adapter_for
from compressor.models import load_compressed, unique_parameters
from compressor.shapes import parameters_of
from tests.compressor.tiny_data import context, run_stage

THIN = {
    "num_hidden_layers": 6, "hidden_size": 32, "embedding_size": 16, "intra_bottleneck_size": 16,
    "intermediate_size": 32, "true_hidden_size": 16, "num_attention_heads": 2, "num_feedforward_networks": 2,
}  # fmt: skip


def test_a_thin_deep_mobilebert_learns_from_a_bert(teacher, tmp_path):
    student = {"init": "new", "family": "mobilebert", "config": THIN}
    config = DistillConfig.model_validate({"student": student, "epochs": 12, "lr": 5e-3, "batch_size": 8})
    facts = run_stage(Distill(config), context(tmp_path, teacher), tmp_path / "out")
    model = load_compressed(tmp_path / "out")
    assert model.config.model_type == "mobilebert"
    assert model.config.num_hidden_layers == 6
    assert facts["layers_copied"] == []
    assert facts["parameters"]["after"] == unique_parameters(model)
    assert facts["evaluation"]["student"]["test"]["value"] > 0.6


@pytest.mark.parametrize("family", ["bert", "albert", "roberta", "electra", "distilbert"])
def test_vocabulary_labels_and_tokens_are_the_teachers(family, teacher):
    theirs = load_compressed(teacher.path)
    depth = "n_layers" if family == "distilbert" else "num_hidden_layers"
    settings = NewStudent(init="new", family=family, config={depth: 2})
    config = settings.model_config_for(theirs.config)
    adapter = adapter_for(config)
    assert adapter.num_layers(config) == 2
    assert (config.vocab_size, config.id2label) == (theirs.config.vocab_size, theirs.config.id2label)
    assert adapter.max_tokens(config) == adapter_for(theirs.config).max_tokens(theirs.config)
    assert parameters_of(config) == unique_parameters(settings.make(theirs))


def test_embeddings_keep_the_teachers_principal_directions():
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(50, 4, generator=generator) @ torch.randn(4, 12, generator=generator)
    found = narrowed(table, 4)
    # A table of rank 4 keeps every inner product in 4 dimensions, up to the one factor of its mean square.
    products = table @ table.T
    factor = (products[0, 0] / (found[0] @ found[0])).item()
    assert torch.allclose(found @ found.T * factor, products, rtol=1e-3, atol=1e-3)
    assert found.square().mean().item() == pytest.approx(table.square().mean().item(), rel=1e-5)
    assert torch.equal(narrowed(table, 12), table)


@pytest.mark.parametrize(("settings", "message"), [
    ({"family": "mobilbert"}, "no model family 'mobilbert'"),
    ({"family": "bert", "config": {"hiden_size": 32}}, "'hiden_size' is no setting"),
    ({"family": "bert", "config": {"vocab_size": 5}}, "'vocab_size' is no setting"),
    ({"family": "bert", "config": {"hidden_size": 30, "num_attention_heads": 4}}, "makes no model"),
])  # fmt: skip
def test_settings_that_make_no_student(settings, message, teacher):
    with pytest.raises(RecipeError, match=message):
        NewStudent(init="new", **settings).make(load_compressed(teacher.path))


PUBLISHED = {
    "tinybert-4": ("bert", 14.35, 4, 312, 12, 1200),
    "tinybert-6": ("bert", 66.96, 6, 768, 12, 3072),
    "distilbert": ("distilbert", 66.36, 6, 768, 12, 3072),
    "mobilebert": ("mobilebert", 24.58, 24, 512, 4, 512),
    "albert": ("albert", 11.68, 12, 768, 12, 3072),
    "electra-small": ("electra", 13.48, 12, 256, 4, 1024),
}
"""Family, millions of parameters of the published encoder with pooler where it has one, layers, width, heads, FFN."""


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_have_the_published_shapes(preset, teacher):
    theirs = load_compressed(teacher.path).config
    # The published vocabularies and numbers of positions; a recipe takes the teacher's.
    theirs.vocab_size, theirs.max_position_embeddings = (30000 if preset == "albert" else 30522), 512
    config = NewStudent.model_validate({"init": "new", "preset": preset}).model_config_for(theirs)
    family, millions, layers, width, heads, ffn = PUBLISHED[preset]
    adapter = adapter_for(config)
    assert config.model_type == family
    assert (adapter.num_layers(config), adapter.hidden_size(config)) == (layers, width)
    assert (adapter.num_heads(config), adapter.intermediate_size(config)) == (heads, ffn)
    with torch.device("meta"):
        from transformers import AutoModel

        encoder = unique_parameters(AutoModel.from_config(config))
    assert encoder / 1e6 == pytest.approx(millions, abs=0.01)


def test_a_preset_can_be_overridden_and_names_its_own_family():
    student = NewStudent.model_validate({"init": "new", "preset": "tinybert-4", "config": {"num_hidden_layers": 2}})
    assert (student.family, student.config["num_hidden_layers"], student.config["hidden_size"]) == ("bert", 2, 312)
    with pytest.raises(ValidationError, match="leave 'family' out"):
        NewStudent.model_validate({"init": "new", "preset": "albert", "family": "bert"})
    with pytest.raises(ValidationError, match="needs a 'preset' or a 'family'"):
        NewStudent.model_validate({"init": "new"})
    with pytest.raises(ValidationError, match="tinybert-4"):
        NewStudent.model_validate({"init": "new", "preset": "tinybert4"})
