from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, ModelError
from compressor.data.dataset import Split
from compressor.distill.stage import Distill
from compressor.families import adapter_for
from compressor.finetune import Finetune, FinetuneConfig
from compressor.models import load_compressed
from compressor.pipeline import Inputs, run, stage_key
from compressor.pretrain.config import PretrainConfig
from compressor.pretrain.encoders import load_masked_language_model
from compressor.pretrain.heads import HEAD
from compressor.pretrain.stage import Pretrain
from compressor.recipe import load_recipe
from tests.compressor.pretrain.tiny import maskable, patterned
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import tiny_checkpoint, write_sentence_transformer

SHORT = {"epochs": 1, "lr": 1e-3, "batch_size": 16, "held_out_tokens": 60}


DISTILL = Distill.name


def stage(**more) -> Pretrain:
    return Pretrain(PretrainConfig.model_validate({**SHORT, **more}))


def where(folder, source, **more):
    return context(folder, source, **{"data": patterned(), **more})


def same(first, second, chosen) -> bool:
    names = [name for name in first if chosen(name)]
    assert names
    return all(torch.equal(first[name], second[name]) for name in names)


def test_words_are_learnt_and_the_classifier_stays(maskable_of, tmp_path):
    source = maskable_of()
    before = source.hash
    facts = run_stage(stage(epochs=25, lr=3e-3), where(tmp_path, source), tmp_path / "out")
    assert np.mean(facts["curves"]["mlm"][-12:]) < 0.7 * np.mean(facts["curves"]["mlm"][:12])
    told = facts["held_out"]
    assert told["after"]["masked_accuracy"] > told["before"]["masked_accuracy"] + 0.2
    assert told["after"]["pseudo_perplexity"] < 0.5 * told["before"]["pseudo_perplexity"]
    assert facts["head"] == "new"
    assert "%" in facts["note"]
    made = Checkpoint.open(tmp_path / "out")
    old, new = load_compressed(source).state_dict(), load_compressed(made).state_dict()
    adapter = adapter_for(load_compressed(made).config)
    assert same(old, new, lambda name: not adapter.in_body(name)), "the head or the pooler moved"
    assert not same(old, new, lambda name: "query.weight" in name)
    assert made.labels == source.labels
    entry = made.compression["history"][-1]
    assert (entry["stage"], entry["objective"], entry["mlm_head"]) == ("pretrain", "mlm", HEAD.as_posix())
    assert Checkpoint(source.path).hash == before, "the input was edited"
    again = run_stage(stage(), where(tmp_path / "again", made), tmp_path / "again" / "out")
    assert again["head"] == "the checkpoint's"
    assert again["held_out"]["before"]["masked_accuracy"] == told["after"]["masked_accuracy"]


@pytest.mark.parametrize("objective", ["mlm", "mlm+sop", "rtd"])
def test_a_killed_run_resumes_to_the_same_curves_and_weights(objective, maskable_of, tmp_path):
    source = maskable_of()
    wanted = stage(objective=objective, epochs=3, checkpoint_steps=4)
    whole = run_stage(wanted, where(tmp_path / "whole", source), tmp_path / "whole" / "out")

    def stop(done: int, total: int, note: str = "") -> None:
        if done == 10:
            raise KeyboardInterrupt

    cut = where(tmp_path / "cut", source)
    (tmp_path / "cut" / "lost").mkdir()
    with pytest.raises(KeyboardInterrupt):
        wanted.run(replace(cut, progress=stop), tmp_path / "cut" / "lost")
    resumed = run_stage(wanted, cut, tmp_path / "cut" / "out")
    assert len(whole["curves"]["total"]) == 18
    assert resumed["curves"] == whole["curves"]
    assert resumed["held_out"]["after"] == whole["held_out"]["after"]
    first, second = (load_compressed(tmp_path / name / "out").state_dict() for name in ("whole", "cut"))
    assert same(first, second, lambda name: True)


def test_replaced_tokens_are_learnt(maskable_of, tmp_path):
    facts = run_stage(stage(objective="rtd", epochs=20, lr=3e-3), where(tmp_path, maskable_of()), tmp_path / "out")
    assert set(facts["curves"]) == {"generator", "rtd", "total"}
    for name in ("generator", "rtd"):
        assert np.mean(facts["curves"][name][-6:]) < np.mean(facts["curves"][name][:6])
    assert facts["head"] == "none"
    assert facts["held_out"]["after"]["rtd_accuracy"] > facts["held_out"]["before"]["rtd_accuracy"]
    assert not (tmp_path / "out" / HEAD.parent).exists()


def test_the_order_of_sentences_is_learnt_beside_words(maskable_of, tmp_path):
    sentences = ("where is my order. please cancel it", "i want a refund. it is late", "my card is late. pay it now")
    split = Split(sentences * 16, (0, 1, 2) * 16)
    data = replace(patterned(), train=split, validation=split)
    settings = stage(objective="mlm+sop", epochs=40, lr=3e-3)
    facts = run_stage(settings, where(tmp_path, maskable_of(), data=data), tmp_path / "out")
    assert set(facts["curves"]) == {"mlm", "sop", "total"}
    assert facts["held_out"]["after"]["sop_accuracy"] > 0.9
    assert facts["held_out"]["before"]["sop_accuracy"] < 0.8
    assert (tmp_path / "out" / HEAD).is_file()


def test_masks_are_new_in_every_epoch_unless_they_are_static(maskable_of, tmp_path, monkeypatch):
    from compressor.pretrain.masking import Masks

    seen = []
    hide = Masks.hide

    def watched(self, inputs, indices, epoch):
        found = hide(self, inputs, indices, epoch)
        seen.append((epoch, {index: found.columns[found.rows == row].tolist() for row, index in enumerate(indices)}))
        return found

    monkeypatch.setattr(Masks, "hide", watched)
    for masking in ("dynamic", "static"):
        seen.clear()
        settings = stage(masking=masking, epochs=2)
        run_stage(settings, where(tmp_path / masking, maskable_of()), tmp_path / masking / "out")
        epochs = [{}, {}]
        for epoch, batch in seen:
            epochs[epoch] |= batch
        assert len(epochs[0]) == len(epochs[1]) == 96
        assert (epochs[0] == epochs[1]) is (masking == "static")


@pytest.mark.parametrize("form", ["encoder", "masked"])
def test_an_encoder_without_a_head_is_taken_on_by_finetune(form, maskable_of, tmp_path):
    source = maskable_of(form=form)
    facts = run_stage(stage(epochs=2), where(tmp_path, source), tmp_path / "out")
    assert facts["head"] == ("the checkpoint's" if form == "masked" else "new")
    made = Checkpoint.open(tmp_path / "out")
    assert made.config["architectures"] == ["BertModel"]
    assert load_masked_language_model(made)
    pretrained = load_masked_language_model(made).encoder.state_dict()
    tuned = run_stage(
        Finetune(FinetuneConfig(epochs=1, lr=1e-9)), context(tmp_path / "t", made), tmp_path / "t" / "out"
    )
    assert "evaluation" in tuned
    found = load_compressed(tmp_path / "t" / "out").bert.state_dict()
    for name, tensor in pretrained.items():
        if "pooler" not in name:
            assert torch.allclose(found[name], tensor, atol=1e-6), name
    assert not (tmp_path / "t" / "out" / HEAD).exists()


def test_a_sentence_embedder_stays_one(maskable_of, tmp_path):
    import shutil

    folder = tmp_path / "embedder"
    shutil.copytree(maskable_of(form="encoder").path, folder)
    write_sentence_transformer(folder)
    run_stage(stage(), where(tmp_path, Checkpoint.open(folder)), tmp_path / "out")
    assert type(load_compressed(tmp_path / "out")).__name__ == "Embedder"


def test_texts_come_from_a_file_whose_content_is_part_of_the_key(maskable_of, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("where is my order\n\nplease cancel the order now\n" * 5)
    source = maskable_of()
    facts = run_stage(stage(texts=file), where(tmp_path, source), tmp_path / "out")
    assert facts["texts"] == 10
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"version: 1\nteacher: {{model: x}}\ndata: {{dir: y}}\nstages: [{{pretrain: {{texts: {file}}}}}]\n"
    )
    made = load_recipe(recipe)
    inputs = Inputs(teacher=source, data=patterned(), threads=1)
    first = stage_key(made.stages[0], made, inputs, ())
    file.write_text("another text\n")
    assert stage_key(made.stages[0], made, inputs, ()) != first


def test_a_pretrained_teacher_that_is_tuned_is_the_reference(maskable_of, tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        "version: 1\nteacher: {model: x}\ndata: {dir: y}\nstages:\n"
        "  - pretrain: {epochs: 1, batch_size: 32, held_out_tokens: 20}\n"
        "  - finetune: {epochs: 10, lr: 2.0e-3, batch_size: 8}\n"
        f"  - {DISTILL}: {{student: {{layers: 1}}, epochs: 1}}\n"
    )
    inputs = Inputs(teacher=maskable_of(form="encoder"), data=tiny_dataset(), threads=1)
    result = run(load_recipe(recipe), inputs, tmp_path / "run")
    assert result.context.trained_teacher.path.name == "02-finetune"
    history = [entry["stage"] for entry in result.context.current.compression["history"]]
    assert history == ["pretrain", "finetune", "distill"]


def test_bad_inputs_are_named_before_any_work(maskable_of, tmp_path):
    source = maskable_of()
    blank = Split(("", "  "), (0, 1))
    one_word = Split(("order", "card"), (0, 1))
    data = patterned()
    with pytest.raises(DataError, match="2 training texts, none with a word"):
        stage().requires(where(tmp_path, source, data=replace(data, train=blank)))
    with pytest.raises(DataError, match="0 training texts"):
        stage().requires(where(tmp_path, source, data=replace(data, train=Split((), ()))))
    with pytest.raises(DataError, match="validation texts, none with a word"):
        stage().requires(where(tmp_path, source, data=replace(data, validation=blank)))
    with pytest.raises(DataError, match="none with two words"):
        stage(objective="mlm+sop").requires(where(tmp_path, source, data=replace(data, train=one_word)))
    with pytest.raises(ModelError, match="no mask token"):
        stage().requires(where(tmp_path, tiny_checkpoint("bert", tmp_path / "maskless")))
    with pytest.raises(DataError, match="does not exist"):
        stage(texts=tmp_path / "none.txt").check(source, ())
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(DataError, match="holds no sentence"):
        stage(texts=tmp_path / "empty.txt").requires(where(tmp_path, source))
    deberta = maskable(tmp_path / "deberta", family="deberta-v2")
    config = (deberta.path / "config.json").read_text().replace('"legacy": true', '"legacy": false')
    (deberta.path / "config.json").write_text(config)
    with pytest.raises(ModelError, match="no head that predicts masked words"):
        stage().requires(where(tmp_path, Checkpoint.open(deberta.path)))


@pytest.mark.parametrize(
    ("objective", "idle"),
    [("rtd", {"mask_share": 0.5}), ("rtd", {"random_share": 0.2}), ("mlm", {"generator": {"width": 0.5}})],
)
def test_settings_that_an_objective_does_not_read_are_refused(objective, idle):
    with pytest.raises(ValidationError, match=f"'{next(iter(idle))}' changes nothing with 'objective: {objective}'"):
        PretrainConfig.model_validate({"objective": objective, **idle})
