from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from compressor.core.checkpoint import Checkpoint
from compressor.core.device import DeviceProfile
from compressor.core.errors import RecipeError, UsageError
from compressor.core.latency import LatencyModel
from compressor.data.batches import encode_split
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.families import adapter_for
from compressor.models import load_compressed, load_config, unique_parameters
from compressor.prune import importance
from compressor.prune.config import PruneConfig
from compressor.prune.costs import Costs
from compressor.prune.importance import IMPORTANCE, importance_of
from compressor.prune.stage import Prune
from compressor.shapes import parameters_of, shape_of
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import FAMILIES, tiny_checkpoint, tiny_task_checkpoint
from tests.shrunk import logits_of

METHODS = {
    "bert": "taylor", "roberta": "activation", "xlm-roberta": "magnitude", "albert": "taylor",
    "distilbert": "activation", "electra": "taylor", "mobilebert": "taylor", "deberta-v2": "taylor",
}  # fmt: skip


def pruned(folder, source, **settings):
    """Runs the stage; returns the facts, the new checkpoint and the parameters that a dry run foretold."""
    stage = Prune(PruneConfig(**settings))
    foretold = parameters_of(stage.forecast(load_config(source)))
    where = context(folder / "run", source)
    return run_stage(stage, where, folder / "out"), Checkpoint.open(folder / "out"), foretold


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_loses_heads_and_neurons_unevenly_and_by_the_arithmetic(family, checkpoint_of, tmp_path):
    source = checkpoint_of(family)
    facts, made, foretold = pruned(tmp_path, source, heads=0.25, ffn=0.4, importance=METHODS[family])
    model = load_compressed(made.path)
    assert unique_parameters(model) == foretold == facts["parameters"]["after"] < facts["parameters"]["before"]
    assert torch.isfinite(logits_of(model, made)).all()
    heads = sum(layer.heads for layer in shape_of(load_compressed(source)).layers)
    assert sum(facts["heads"]) == heads - round(0.25 * heads)
    assert made.size_bytes < source.size_bytes
    assert made.compression["history"][-1]["ffn"] == facts["ffn"]
    assert (made.path / IMPORTANCE).is_file()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_adds_nothing_can_go_without_a_trace(family, tmp_path):
    """Neurons and heads whose outputs nobody reads are those that go, and the logits stay the same."""
    source = tiny_checkpoint(family, tmp_path / "source")
    model = load_compressed(source)
    adapter = adapter_for(model.config)
    size = shape_of(model).head_size
    with torch.no_grad():
        for layer in adapter.stored_layers(model).values():
            layer.get_submodule(adapter.layer.attention_output).weight[:, size : 2 * size] = 0
            for _, narrow in adapter.feed_forwards(layer):
                narrow.weight[:, 5:37] = 0
    model.save_pretrained(source.path)
    source = Checkpoint.open(source.path)
    wanted = logits_of(model, source)
    facts, made, _ = pruned(tmp_path, source, heads=0.25, ffn=0.5, importance="activation", uniform=True)
    assert {*facts["heads"]} == {3}
    assert {width for widths in facts["ffn"] for width in widths} == {32}
    torch.testing.assert_close(logits_of(load_compressed(made.path), made), wanted, atol=2e-5, rtol=1e-5)


def test_a_uniform_width_alone_is_a_plain_model_that_transformers_loads(checkpoint_of, tmp_path):
    from transformers import AutoModelForSequenceClassification

    _, made, _ = pruned(tmp_path, checkpoint_of("bert"), ffn=0.5, uniform=True, multiple_of=8)
    assert "shape" not in made.compression
    plain = AutoModelForSequenceClassification.from_pretrained(made.path, attn_implementation="eager").eval()
    assert plain.config.intermediate_size == 32
    assert torch.equal(logits_of(plain, made), logits_of(load_compressed(made.path), made))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "albert"])
def test_layers_go_by_list_and_by_importance(family, tmp_path):
    source = tiny_checkpoint(family, tmp_path / "source", layers=3)
    facts, made, foretold = pruned(tmp_path / "list", source, drop_layers=(1,))
    model = load_compressed(made.path)
    assert facts["layers_kept"] == [0, 2]
    assert unique_parameters(model) == foretold
    before, adapter = load_compressed(source), adapter_for(model.config)
    old, new = (adapter.encoder_layers(it)[-1].state_dict() for it in (before, model))
    assert all(torch.equal(old[name], new[name]) for name in old)
    facts, made, foretold = pruned(tmp_path / "count", source, drop_layers=1, heads=0.25)
    assert len(facts["layers_kept"]) == 2
    assert unique_parameters(load_compressed(made.path)) == foretold


@pytest.mark.parametrize("family", FAMILIES)
def test_the_hidden_size_shrinks_in_every_tensor_alike(family, checkpoint_of, tmp_path):
    source = checkpoint_of(family)
    facts, made, foretold = pruned(tmp_path, source, hidden=24, heads=0.25, importance="magnitude")
    model = load_compressed(made.path)
    assert facts["hidden"] == 24
    assert unique_parameters(model) == foretold
    assert torch.isfinite(logits_of(model, made)).all()


def test_channels_that_carry_nothing_are_those_that_go(checkpoint_of, tmp_path):
    """Silent channels only scale the variance that LayerNorm divides by; the ranking has to find them."""
    from compressor.prune.channels import channel_importance, narrowed_parameters

    model = load_compressed(checkpoint_of("bert"))
    shape = shape_of(model)
    silent = [1, 4, 9, 30]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for axis in narrowed_parameters(model.config, shape, 28)[name]:
                parameter.index_fill_(axis, torch.tensor(silent), 0)
    assert sorted(channel_importance(model, shape).argsort()[:4].tolist()) == silent


def test_widths_fill_the_kernels_of_the_device(checkpoint_of, tmp_path):
    source = checkpoint_of("bert")
    where = context(tmp_path, source)

    class Profile:
        widths_multiple_of = 16

    where = replace(where, profiles=lambda name: Profile())
    facts = run_stage(Prune(PruneConfig(ffn=0.4, device="phone")), where, tmp_path / "out")
    widths = [width for widths in facts["ffn"] for width in widths]
    assert all(width % 16 == 0 for width in widths)
    assert sum(widths) == 80  # 0.6 of 128 is 76.8, which is 4.8 blocks


def test_taylor_is_the_gradient_of_a_gate(checkpoint_of):
    """Against autograd: the derivative of the loss by a factor on one neuron's output, one sentence at a time."""
    source = checkpoint_of("bert")
    model = load_compressed(source)
    data = encode_split(source, tiny_dataset(train=6).train, max_tokens=32)
    found = importance_of(model, data, method="taylor", task="text-classification")
    wide = model.bert.encoder.layer[1].intermediate
    head = model.bert.encoder.layer[0].attention.self
    wanted_neuron = wanted_head = 0.0
    for row in range(6):
        gate, head_gate = torch.ones((), requires_grad=True), torch.ones((), requires_grad=True)
        unit = torch.zeros(64).index_fill(0, torch.tensor(7), 1.0)
        part = torch.zeros(32).index_fill(0, torch.arange(8, 16), 1.0)
        hooks = [
            wide.register_forward_hook(lambda m, i, out, gate=gate, unit=unit: out * (1 + unit * (gate - 1))),
            head.register_forward_hook(
                lambda m, i, out, gate=head_gate, unit=part: (out[0] * (1 + unit * (gate - 1)), *out[1:])
            ),
        ]
        loss = torch.nn.functional.cross_entropy(model(**data.inputs([row])).logits, torch.tensor([data.labels[row]]))
        grads = torch.autograd.grad(loss, (gate, head_gate))
        wanted_neuron, wanted_head = wanted_neuron + abs(float(grads[0])), wanted_head + abs(float(grads[1]))
        for hook in hooks:
            hook.remove()
    assert found.ffn[1][7] == pytest.approx(wanted_neuron / 6, rel=1e-3)
    assert found.heads[0][1] == pytest.approx(wanted_head / 6, rel=1e-3)


def test_budgets_are_met_and_no_further_than_needed(checkpoint_of, tmp_path):

    source = checkpoint_of("bert")
    before = shape_of(load_compressed(source))
    costs = Costs(load_config(source), before)
    whole = costs.parameters(before)
    facts, made, foretold = pruned(tmp_path / "parameters", source, budget={"parameters": whole - 6000})
    after = facts["parameters"]["after"]
    assert after == foretold
    assert whole - 6000 - 32 * 8 * 4 * 2 < after <= whole - 6000
    limit = costs.flops(before, 16) * 0.7 / 1e6
    _, made, _ = pruned(tmp_path / "flops", source, budget={"mflops": limit, "tokens": 16})
    assert 0.6 * limit < costs.flops(shape_of(load_compressed(made.path)), 16) / 1e6 <= limit


TABLE = LatencyModel(
    device="phone@adb:1", format="tflite", precision="int8", threads=1, model_type="bert", hidden_size=32, head_size=8,
    tokens=16, idle_ms=0.5, heads=(1, 4), intermediate=(8, 64), layer_ms=((0.5, 1.0), (1.5, 2.0)),
)  # fmt: skip


def test_a_time_budget_is_met_by_the_device_s_table(checkpoint_of, tmp_path):
    file = tmp_path / "latency.json"
    file.write_text(TABLE.model_dump_json())
    source = checkpoint_of("bert")
    facts, made, foretold = pruned(tmp_path, source, budget={"ms": 3.0, "tokens": 16}, latency=str(file))
    model = load_compressed(made.path)
    costs = Costs(model.config, shape_of(model))
    found = costs.milliseconds(shape_of(model), LatencyModel.load(file))
    assert 2.5 < found <= 3.0
    assert facts["latency"]["predicted_ms"] == pytest.approx(found)
    assert (facts["latency"]["device"], facts["parameters"]["after"]) == ("phone@adb:1", foretold)
    before = shape_of(load_compressed(source))
    assert Costs(load_config(source), before).milliseconds(before, TABLE) == pytest.approx(4.5)


def test_a_device_is_asked_for_its_table_through_the_context(checkpoint_of, tmp_path):
    source = checkpoint_of("bert")
    asked = []

    def measure(device, checkpoint, tokens):
        asked.append((device, checkpoint.hash, tokens))
        return TABLE

    stage = Prune(PruneConfig(budget={"ms": 3.0, "tokens": 16}, latency="phone"))
    profile = DeviceProfile(name="phone", title="a phone", kind="android", architecture="aarch64", formats=("tflite",))
    where = context(tmp_path / "run", source, latency=measure, profiles=lambda name: profile)
    stage.requires(where)
    assert asked == [], "measured before it was time"
    assert run_stage(stage, where, tmp_path / "out")["latency"]["predicted_ms"] <= 3.0
    assert asked == [("phone", source.hash, 16)]
    assert parameters_of(stage.forecast(load_config(source))) == parameters_of(load_config(source))
    with pytest.raises(RecipeError, match="cannot be measured here"):
        stage.run(replace(where, latency=None), tmp_path / "none")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "albert", "tokens": 32}, "model_type albert, tokens 32; asked for model_type bert, tokens 16"),
        ({"hidden_size": 64}, "hidden_size 64"),
        ({"head_size": 16}, "head_size 16"),
        ({"device": "tablet@local"}, "device tablet"),
    ],
)
def test_a_table_of_something_else_is_refused_before_any_work(changes, message, checkpoint_of, tmp_path):
    file = tmp_path / "latency.json"
    file.write_text(TABLE.model_copy(update=changes).model_dump_json())
    config = PruneConfig(budget={"ms": 3.0, "tokens": 16}, latency=str(file), device="phone", multiple_of=1)
    with pytest.raises(RecipeError, match=message):
        Prune(config).requires(context(tmp_path, checkpoint_of("bert")))


def test_no_table_and_half_a_table_are_refused(checkpoint_of, tmp_path):
    file = tmp_path / "latency.json"
    stage = Prune(PruneConfig(budget={"ms": 3.0}, latency=str(file)))
    for text in (None, "{}", TABLE.model_dump_json().replace("[0.5,1.0]", "[0.5]")):
        if text is not None:
            file.write_text(text)
        with pytest.raises(UsageError, match=r"latency\.json (does not exist|cannot be read: \w+)"):
            stage.requires(context(tmp_path, checkpoint_of("bert")))
    assert stage.files() == (file,)


def test_a_pruned_model_recovers_by_distillation_from_the_unpruned_one(trained, tmp_path):
    data = tiny_dataset()
    _, made, _ = pruned(tmp_path, trained, heads=0.25, ffn=0.5)
    where = context(tmp_path / "next", made, checkpoints={"01-finetune": trained}, data=data)
    config = DistillConfig(teacher="01-finetune", losses=[{"name": "logits"}], epochs=1, batch_size=16, lr=1e-3)
    run_stage(Distill(config), where, tmp_path / "recovered")
    recovered = Checkpoint.open(tmp_path / "recovered")
    assert recovered.compression["shape"] == made.compression["shape"]
    assert [step["stage"] for step in recovered.compression["history"]] == ["prune", "distill"]
    assert unique_parameters(load_compressed(recovered)) == unique_parameters(load_compressed(made))


@pytest.mark.parametrize("task", ["token-classification", "question-answering", "sentence-embedding", "regression"])
def test_other_heads_are_pruned_too(task, tmp_path):
    source = tiny_task_checkpoint(task, tmp_path / "source")
    _, made, _ = pruned(tmp_path, source, heads=0.5, ffn=0.3, importance="activation")
    assert (made.path / "modules.json").is_file() == (task == "sentence-embedding")
    data = encode_split(made, tiny_dataset(train=3).train, max_tokens=32)
    with torch.no_grad():
        answers = load_compressed(made)(**data.inputs([0, 1, 2]))
    assert all(
        np.isfinite(value.numpy()).all() for value in tuple(answers.values() if isinstance(answers, dict) else answers)
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heads": 0.9}, "leaves a layer without heads"),
        ({"heads": 0.9, "uniform": True}, "leaves a layer without heads"),
        ({"ffn": 0.9, "multiple_of": 32}, "leaves a layer without neurons"),
        ({"budget": {"parameters": 100}}, "below what is left"),
        ({"drop_layers": 2}, "does not fit a model of 2 layers"),
        ({"drop_layers": (5,)}, "does not fit a model of 2 layers"),
        ({"hidden": 30}, "multiple of 4"),
    ],
)
def test_what_would_break_the_model_is_refused_before_any_work(settings, message, checkpoint_of, tmp_path):
    where = context(tmp_path, checkpoint_of("bert"))
    with pytest.raises(RecipeError, match=message):
        Prune(PruneConfig(**settings)).requires(where)
    assert not (tmp_path / "importance").exists()


def test_importances_are_kept_for_the_next_ratio_and_found_again_by_other_code(checkpoint_of, tmp_path, monkeypatch):
    where = context(tmp_path, checkpoint_of("bert"))
    first = run_stage(Prune(PruneConfig(ffn=0.25)), where, tmp_path / "first")
    monkeypatch.setattr(importance, "importance_of", lambda *_, **__: pytest.fail("looked again"))
    second = run_stage(Prune(PruneConfig(ffn=0.5)), where, tmp_path / "second")
    assert second["parameters"]["after"] < first["parameters"]["after"]
    monkeypatch.setattr(importance, "source_hash", lambda _: "a later version of this code")
    with pytest.raises(pytest.fail.Exception, match="looked again"):
        run_stage(Prune(PruneConfig(ffn=0.5)), where, tmp_path / "third")


def test_settings_that_say_nothing_or_too_much_are_refused():
    for settings in ({}, {"heads": 1.0}, {"heads": 0.1, "budget": {"parameters": 1}}, {"budget": {"ms": 1.0}}):
        with pytest.raises(ValidationError):
            PruneConfig(**settings)


@pytest.mark.parametrize("idle", [{"importance": "taylor"}, {"uniform": True}, {"multiple_of": 8}])
@pytest.mark.parametrize("removed", [{"hidden": 16}, {"drop_layers": 1}])
def test_settings_of_heads_and_neurons_are_refused_where_none_go(removed, idle):
    with pytest.raises(ValidationError, match=f"'{next(iter(idle))}' is of heads and neurons"):
        PruneConfig.model_validate({**removed, **idle})
    assert PruneConfig.model_validate({**removed, **idle, "ffn": 0.5}).cuts
