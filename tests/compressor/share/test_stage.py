import numpy as np
import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, RecipeError
from compressor.families import adapter_for
from compressor.models import load_compressed, load_config, unique_parameters
from compressor.prune.config import PruneConfig
from compressor.prune.stage import Prune
from compressor.shapes import parameters_of, read_shape, with_shape
from compressor.share.factorize import Factorize, FactorizeConfig
from compressor.share.grouping import by_similarity
from compressor.share.stage import Share, ShareConfig
from tests.compressor.tiny_data import context, run_stage
from tests.models import FAMILIES, tiny_checkpoint, tiny_task_checkpoint
from tests.shrunk import logits_of

UNSHARED = [family for family in FAMILIES if family != "albert"]


def shared(folder, source, **settings):
    """Runs the stage; returns the facts, the new checkpoint and the parameters that a dry run foretold."""
    stage = Share(ShareConfig(**settings))
    foretold = parameters_of(stage.forecast(with_shape(load_config(source), read_shape(source))))
    return run_stage(stage, context(folder / "run", source), folder / "out"), Checkpoint.open(folder / "out"), foretold


def factorized(folder, source, rank):
    stage = Factorize(FactorizeConfig(rank=rank))
    foretold = parameters_of(stage.forecast(with_shape(load_config(source), read_shape(source))))
    return run_stage(stage, context(folder / "run", source), folder / "out"), Checkpoint.open(folder / "out"), foretold


@pytest.mark.parametrize("family", UNSHARED)
def test_every_family_shares_layers_that_are_stored_once(family, tmp_path):
    source = tiny_checkpoint(family, tmp_path / "source", layers=4)
    facts, made, foretold = shared(tmp_path, source, groups=2, init="best")
    model, before = load_compressed(made.path), load_compressed(source)
    adapter = adapter_for(model.config)
    assert facts["groups"] == [0, 0, 1, 1]
    assert unique_parameters(model) == foretold
    layers = [*adapter.encoder_layers(model)]
    assert layers[0] is layers[1] and layers[2] is layers[3] and layers[1] is not layers[2]
    assert made.size_bytes < 0.75 * source.size_bytes
    for depth, chosen in zip((0, 2), facts["initialised_from"], strict=True):
        old, new = adapter.encoder_layers(before)[chosen].state_dict(), layers[depth].state_dict()
        assert all(torch.equal(old[name], new[name]) for name in old)
    assert torch.isfinite(logits_of(model, made)).all()


def test_layers_that_are_alike_share_without_a_trace(tmp_path):
    source = tiny_checkpoint("bert", tmp_path / "source", layers=4)
    model = load_compressed(source)
    layers = model.bert.encoder.layer
    for copy, original in ((2, 0), (3, 1)):
        layers[copy].load_state_dict(layers[original].state_dict())
    model.save_pretrained(source.path)
    source = Checkpoint.open(source.path)
    facts, made, _ = shared(tmp_path, source, groups=2, by="similarity", init="mean")
    assert facts["groups"] == [0, 1, 0, 1]
    assert torch.equal(logits_of(load_compressed(made.path), made), logits_of(model, source))
    assert by_similarity(layers, 4) == (0, 1, 2, 3)


def test_the_mean_of_a_group_is_the_mean(tmp_path):
    source = tiny_checkpoint("bert", tmp_path / "source", layers=2)
    _, made, _ = shared(tmp_path, source)
    before, after = (load_compressed(it).bert.encoder.layer for it in (source, made))
    name = "intermediate.dense.weight"
    mean = torch.stack([before[0].get_parameter(name), before[1].get_parameter(name)]).mean(dim=0)
    assert torch.equal(after[0].get_parameter(name), mean)


def test_a_shared_bert_saved_as_albert_computes_the_same_and_transformers_loads_it_alone(tmp_path):
    from transformers import AlbertForSequenceClassification

    source = tiny_checkpoint("bert", tmp_path / "source", layers=4)
    _, own, _ = shared(tmp_path / "own", source, groups=2)
    _, albert, foretold = shared(tmp_path / "albert", source, groups=2, as_albert=True)
    plain = AlbertForSequenceClassification.from_pretrained(albert.path, attn_implementation="eager").eval()
    assert "shape" not in albert.compression
    assert unique_parameters(plain) == foretold == unique_parameters(load_compressed(own)) + 32 * 32 + 32
    torch.testing.assert_close(logits_of(plain, albert), logits_of(load_compressed(own), own), atol=1e-6, rtol=1e-6)


def test_an_albert_of_several_groups_becomes_one_of_fewer(tmp_path):
    from transformers import AutoModelForSequenceClassification

    from tests.models import spread, tiny_config, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    config = tiny_config("albert", layers=4, vocabulary=len(tokenizer))
    config.num_hidden_groups = 2
    model = AutoModelForSequenceClassification.from_config(config)
    spread(model)
    model.save_pretrained(tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "source")
    source = Checkpoint.open(tmp_path / "source")
    _, made, foretold = shared(tmp_path, source, groups="all", init="best")
    found = AutoModelForSequenceClassification.from_pretrained(made.path)
    assert found.config.num_hidden_groups == 1
    assert unique_parameters(found) == foretold
    with pytest.raises(ModelError, match="shared already"):
        Share(ShareConfig()).requires(context(tmp_path / "again", made))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_s_embeddings_are_factorised_by_the_arithmetic(family, checkpoint_of, tmp_path):
    source = checkpoint_of(family)
    facts, made, foretold = factorized(tmp_path, source, rank=6)
    model = load_compressed(made.path)
    table = adapter_for(model.config).word_embedding(load_compressed(source)).weight.detach().numpy()
    values = np.linalg.svd(table.astype(np.float64), compute_uv=False)
    assert facts["embeddings"]["relative_error"] == pytest.approx(
        np.sqrt((values[6:] ** 2).sum() / (values**2).sum()), rel=1e-4
    )
    rows, width = table.shape
    assert unique_parameters(model) == foretold
    assert unique_parameters(load_compressed(source)) - foretold == rows * width - 6 * (rows + width)
    ids = torch.arange(rows)
    found = adapter_for(model.config).word_embedding(model)(ids).detach().numpy()
    error = np.linalg.norm(found - table) / np.linalg.norm(table)
    assert error == pytest.approx(facts["embeddings"]["relative_error"], rel=1e-4)


def test_the_paper_s_arithmetic():
    """30,000 x 768 → E = 128: 23.0 M → 3.9 M (Lan et al. 2020)."""
    from transformers import BertConfig

    config = BertConfig(vocab_size=30_000, num_hidden_layers=1)
    stage = Factorize(FactorizeConfig(rank=128))
    assert parameters_of(config) - parameters_of(stage.forecast(config)) == 23_040_000 - 3_938_304


def test_all_methods_together_survive_every_step(trained, tmp_path):
    """Uneven heads, shared layers and thin embeddings in one model, saved and loaded after each."""
    facts = run_stage(Prune(PruneConfig(heads=0.5, ffn=0.5, uniform=True)), context(tmp_path, trained), tmp_path / "a")
    assert facts["heads"] == [2, 2]
    _, second, _ = shared(tmp_path / "b", Checkpoint.open(tmp_path / "a"))
    _, third, foretold = factorized(tmp_path / "c", second, rank=8)
    model = load_compressed(third.path)
    assert [step["stage"] for step in third.compression["history"]] == ["prune", "share", "factorize"]
    assert third.compression["shape"]["groups"] == [0, 0]
    assert unique_parameters(model) == foretold
    assert torch.isfinite(logits_of(model, third)).all()


@pytest.mark.parametrize("task", ["sentence-embedding", "token-classification"])
def test_other_heads_share_too(task, tmp_path):
    source = tiny_task_checkpoint(task, tmp_path / "source", body=tiny_checkpoint("bert", tmp_path / "body"))
    _, made, _ = shared(tmp_path, source)
    model = load_compressed(made)
    assert len({id(layer) for layer in adapter_for(model.config).encoder_layers(model)}) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": 3}, "expected 1 to 2"),
        ({"groups": [[0], [0, 1]]}, "each layer from 0 to 1 once"),
        ({"groups": [[0, 2]]}, "each layer from 0 to 1 once"),
    ],
)
def test_groups_that_do_not_fit_are_refused(settings, message, checkpoint_of, tmp_path):
    with pytest.raises(RecipeError, match=message):
        Share(ShareConfig(**settings)).requires(context(tmp_path, checkpoint_of("bert")))


def test_layers_of_different_widths_do_not_share(checkpoint_of, tmp_path):
    source = tiny_checkpoint("bert", tmp_path / "source")
    model = load_compressed(source)
    with torch.no_grad():
        model.bert.encoder.layer[0].output.dense.weight.mul_(0.01)
    model.save_pretrained(source.path)
    settings = PruneConfig(ffn=0.5, importance="magnitude")
    run_stage(Prune(settings), context(tmp_path, Checkpoint.open(source.path)), tmp_path / "out")
    with pytest.raises(RecipeError, match="cannot share weights"):
        Share(ShareConfig()).requires(context(tmp_path / "next", Checkpoint.open(tmp_path / "out")))


def test_a_rank_that_saves_nothing_is_refused(checkpoint_of, tmp_path):
    source = checkpoint_of("bert")
    with pytest.raises(RecipeError, match="choose a rank below"):
        Factorize(FactorizeConfig(rank=32)).requires(context(tmp_path, source))
    _, made, _ = factorized(tmp_path, source, rank=4)
    with pytest.raises(RecipeError, match="factorised already"):
        Factorize(FactorizeConfig(rank=2)).requires(context(tmp_path, made))
