import pytest
import torch
from transformers import AutoModelForMaskedLM

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.families import adapter_for
from compressor.models import load_compressed, load_encoder, save_checkpoint
from compressor.pretrain.encoders import load_any, load_masked_language_model
from compressor.pretrain.heads import HEAD, masked_head
from compressor.share.factorize import Factorize, FactorizeConfig
from tests.compressor.pretrain.tiny import encoded
from tests.compressor.tiny_data import context, run_stage
from tests.models import FAMILIES

TEXTS = ("where is my order", "please cancel the order now", "i want a refund of the money")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_s_own_head_gives_the_logits_of_transformers(family, maskable_of):
    source = maskable_of(family, "masked")
    inputs = encoded(source, TEXTS).inputs(range(3))
    whole = AutoModelForMaskedLM.from_pretrained(source.path, attn_implementation="eager").eval()
    loaded = load_masked_language_model(source)
    with torch.no_grad():
        wanted = whole(**inputs).logits
        states = loaded.encoder(**inputs).last_hidden_state
        found = loaded.head(states[inputs["attention_mask"].bool()])
    torch.testing.assert_close(found, wanted[inputs["attention_mask"].bool()], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "distilbert", "electra"])
def test_a_new_head_is_tied_survives_saving_and_is_no_part_of_the_model(family, maskable_of, tmp_path):
    source = maskable_of(family)
    model = load_any(source)
    torch.manual_seed(1)
    head, had = masked_head(model, source)
    assert not had
    table = adapter_for(model.config).word_embedding(model).weight
    names = {name for name, parameter in head.named_parameters() if parameter is table}
    assert not names, "the head owns the word embeddings"
    states = torch.randn(5, 32)
    head.eval()
    before = head(states)
    with torch.no_grad():
        table.mul_(2.0)
    assert not torch.allclose(head(states), before), "the head is not tied"
    with torch.no_grad():
        table.div_(2.0)
    save_checkpoint(model, source.path, tmp_path)
    plain = Checkpoint.open(tmp_path)
    parameters, size = sum(p.numel() for p in load_compressed(plain).parameters()), plain.size_bytes
    head.save(tmp_path)
    saved = Checkpoint(tmp_path)
    assert (tmp_path / HEAD).is_file()
    assert saved.size_bytes == size
    assert sum(p.numel() for p in load_compressed(saved).parameters()) == parameters
    again, had = masked_head(load_any(saved), saved)
    assert had
    assert torch.equal(again.eval()(states), before)


def test_every_parameter_of_a_head_gets_a_gradient(maskable_of):
    for family in FAMILIES:
        head, _ = masked_head(load_any(maskable_of(family)), None)
        head(torch.randn(4, 32)).square().mean().backward()
        idle = [name for name, parameter in head.named_parameters() if parameter.grad is None]
        assert idle == [], family


def test_a_bare_encoder_keeps_its_pooler(maskable_of, tmp_path):
    source = maskable_of(form="encoder")
    save_checkpoint(load_encoder(source), source.path, tmp_path)
    saved = Checkpoint.open(tmp_path)
    assert saved.config["architectures"] == ["BertModel"]
    first, second = load_encoder(source).state_dict(), load_encoder(saved).state_dict()
    assert first.keys() == second.keys()
    assert any("pooler" in name for name in first)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_model_without_a_head_is_no_masked_language_model(maskable_of):
    with pytest.raises(ModelError, match="no head that predicts masked words"):
        load_masked_language_model(maskable_of())


def test_a_damaged_or_foreign_head_is_named(maskable_of, tmp_path):
    source = maskable_of()
    save_checkpoint(load_any(source), source.path, tmp_path)
    masked_head(load_any(source), None)[0].save(tmp_path)
    (tmp_path / HEAD).write_bytes(b"no weights")
    with pytest.raises(ModelError, match="does not fit"):
        load_masked_language_model(Checkpoint(tmp_path))
    masked_head(load_any(maskable_of("distilbert")), None)[0].save(tmp_path)
    with pytest.raises(ModelError, match="does not fit"):
        load_masked_language_model(Checkpoint(tmp_path))


def test_factorized_embeddings_are_refused_with_the_remedy(maskable_of, tmp_path):
    run_stage(Factorize(FactorizeConfig(rank=8)), context(tmp_path, maskable_of()), tmp_path / "out")
    with pytest.raises(ModelError, match="before factorize"):
        masked_head(load_any(Checkpoint.open(tmp_path / "out")), None)
