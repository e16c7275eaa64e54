from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, RecipeError
from compressor.data.batches import encode_split
from compressor.distill.capture import run_model
from compressor.distill.config import DistillConfig
from compressor.distill.objective import Distillation
from compressor.distill.stage import Distill, same_lengths
from compressor.finetune import Finetune, FinetuneConfig
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import tiny_checkpoint

TRAIN = {"epochs": 2, "lr": 2e-3, "batch_size": 8}


def config(**more) -> DistillConfig:
    return DistillConfig.model_validate({**TRAIN, "student": {"layers": 2}, **more})


def test_a_new_student_learns_and_says_how_it_was_made(teacher: Checkpoint, tmp_path: Path) -> None:
    before = teacher.hash
    losses = [{"name": "logits", "temperature": 2.0}, {"name": "hidden", "weight": 0.5}, {"name": "labels"}]
    facts = run_stage(Distill(config(epochs=6, losses=losses)), context(tmp_path, teacher), tmp_path / "out")
    student = Checkpoint.open(tmp_path / "out")
    assert student.labels == teacher.labels
    assert student.config["num_hidden_layers"] == 2
    entry = student.compression["history"][-1]
    assert (entry["stage"], entry["layers_copied"]) == ("distill", [1, 3])
    assert entry["parameters"] == facts["parameters"]
    assert facts["parameters"]["after"] < facts["parameters"]["before"]
    assert set(facts["curves"]) == {"logits", "hidden", "labels", "total"}
    first = {name: values[0] for name, values in facts["curves"].items()}
    assert first["total"] == pytest.approx(first["logits"] + 0.5 * first["hidden"] + first["labels"], rel=1e-5)
    assert np.mean(facts["curves"]["logits"][-5:]) < 0.5 * np.mean(facts["curves"]["logits"][:5])
    assert facts["evaluation"]["student"]["test"]["value"] > 0.8
    assert facts["evaluation"]["teacher"]["test"]["value"] > 0.8
    assert Checkpoint(teacher.path).hash == before, "the teacher was edited"


def test_a_second_student_costs_no_teacher_time(
    teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(model, inputs, *needs):
        asked.append(len(inputs["input_ids"]))
        return run_model(model, inputs, *needs)

    monkeypatch.setenv("COMPRESSOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("compressor.distill.teacher.run_model", counted)
    for name, student in (("first", {"layers": 2}), ("second", {"layers": 1})):
        stage = Distill(config(student=student, losses=[{"name": "logits"}, {"name": "hidden"}]))
        facts = run_stage(stage, context(tmp_path / name, teacher), tmp_path / f"{name}-out")
        assert facts["teacher_hidden_states_cached"]
        assert bool(asked) == (name == "first")
        asked.clear()


def test_the_current_checkpoint_learns_from_a_named_stage(teacher: Checkpoint, tmp_path: Path) -> None:
    small = tiny_checkpoint("bert", tmp_path / "small", layers=1, seed=5)
    where = context(tmp_path, small, checkpoints={"01-finetune": teacher})
    stage = Distill(config(student=None, teacher="01-finetune", losses=[{"name": "hidden", "map": "last"}]))
    facts = run_stage(stage, where, tmp_path / "out")
    assert facts["layers_copied"] is None
    assert Checkpoint.open(tmp_path / "out").config["num_hidden_layers"] == 1


@pytest.mark.parametrize("family", ["distilbert", "electra"])
def test_each_model_is_fed_what_it_takes(family: str, teacher: Checkpoint, tmp_path: Path) -> None:
    """A BERT teacher reads token types, a DistilBERT student has none, and the other way round."""
    other = tiny_checkpoint(family, tmp_path / "other")
    forth = context(tmp_path / "forth", other, checkpoints={"t": teacher})
    settings = config(student=None, teacher="t", epochs=0.5, losses=[{"name": "logits"}, {"name": "hidden"}])
    facts = run_stage(Distill(settings), forth, tmp_path / "out")
    assert np.isfinite(facts["curves"]["total"]).all()
    run_stage(Finetune(FinetuneConfig(epochs=6, lr=2e-3, batch_size=8)), context(tmp_path, other), tmp_path / "tuned")
    back = context(tmp_path / "back", teacher, checkpoints={"t": Checkpoint.open(tmp_path / "tuned")})
    settings = config(student=None, teacher="t", epochs=0.5, losses=[{"name": "logits"}])
    run_stage(Distill(settings), back, tmp_path / "back-out")


def test_token_types_are_the_students_own(teacher: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[str]] = {}
    forward = Distillation.forward

    def recorded(self, inputs, labels, indices):
        seen.setdefault(self.model.config.model_type, set()).update(inputs)
        return forward(self, inputs, labels, indices)

    monkeypatch.setattr(Distillation, "forward", recorded)
    for family in ("distilbert", "bert"):
        small = tiny_checkpoint(family, tmp_path / family)
        where = context(tmp_path / f"of-{family}", small, checkpoints={"t": teacher})
        settings = config(student=None, teacher="t", epochs=0.1, losses=[{"name": "logits"}])
        run_stage(Distill(settings), where, tmp_path / f"{family}-out")
    assert seen == {
        "distilbert": {"input_ids", "attention_mask"},
        "bert": {"input_ids", "attention_mask", "token_type_ids"},
    }


def test_a_tokenizer_that_cuts_otherwise_is_refused(teacher: Checkpoint) -> None:
    data = encode_split(teacher, tiny_dataset().train, max_tokens=32)
    same_lengths(data, data)
    shorter = encode_split(teacher, tiny_dataset().train, max_tokens=6)
    with pytest.raises(ModelError, match="6 tokens for the student"):
        same_lengths(data, shorter)


def test_a_killed_distillation_resumes_to_the_same_curve(teacher: Checkpoint, tmp_path: Path) -> None:
    settings = config(checkpoint_steps=4)

    def stop(done: int, total: int, note: str = "") -> None:
        if done == 10 and note.startswith("loss"):
            raise KeyboardInterrupt

    whole = run_stage(Distill(settings), context(tmp_path / "a", teacher), tmp_path / "whole")
    cut = context(tmp_path / "b", teacher, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        run_stage(Distill(settings), cut, tmp_path / "cut")
    resumed = run_stage(Distill(settings), context(tmp_path / "b", teacher), tmp_path / "resumed")
    assert resumed["curves"] == whole["curves"]


def test_other_vocabulary_is_refused_before_any_work(teacher: Checkpoint, tmp_path: Path) -> None:
    other = tiny_checkpoint("roberta", tmp_path / "other")
    where = context(tmp_path, other, checkpoints={"t": teacher})
    with pytest.raises(ModelError, match="vocabulary entries") as error:
        Distill(config(student=None, teacher="t", losses=[{"name": "logits"}])).requires(where)
    assert "tokenizer" in error.value.remedy


def test_other_refusals(teacher: Checkpoint, tmp_path: Path) -> None:
    where = context(tmp_path, teacher, checkpoints={"01-finetune": teacher})
    with pytest.raises(RecipeError, match=r"did you mean '01-finetune'"):
        Distill(config(teacher="01-finetunes")).requires(where)
    with pytest.raises(RecipeError, match="student of 5 layers"):
        Distill(config(student={"layers": 5})).requires(where)
    with pytest.raises(RecipeError, match="expected 2"):
        Distill(config(losses=[{"name": "hidden", "map": [1]}])).requires(where)
    data = replace(where.data, label_names=("a", "b", "c"))
    with pytest.raises(ModelError, match="finetune stage"):
        Distill(config()).requires(replace(where, data=data))
    data = replace(where.data, label_names=teacher.labels[::-1])
    with pytest.raises(ModelError, match="in another order") as error:
        Distill(config()).requires(replace(where, data=data))
    assert "teacher's order" in error.value.remedy
    with pytest.raises(ValidationError, match="name its 'teacher'"):
        config(student=None)
    with pytest.raises(ValidationError, match="listed twice"):
        config(losses=[{"name": "logits"}, {"name": "logits"}])
