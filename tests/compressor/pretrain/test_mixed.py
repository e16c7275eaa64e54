from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.finetune import Finetune, FinetuneConfig
from compressor.models import load_compressed
from compressor.pretrain.encoders import load_masked_language_model
from compressor.pretrain.heads import HEAD
from compressor.pretrain.stage import Pretrain, PretrainConfig
from tests.compressor.pretrain.tiny import maskable
from tests.compressor.tiny_data import context, run_stage
from tests.models import tiny_checkpoint

SETTINGS = {"epochs": 2, "lr": 2e-3, "batch_size": 16, "student": {"layers": 1}, "losses": [{"name": "logits"}]}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    base = maskable(folder / "base")
    run_stage(Finetune(FinetuneConfig(epochs=8, lr=2e-3, batch_size=8)), context(folder, base), folder / "tuned")
    return Checkpoint.open(folder / "tuned")


def config(**more) -> DistillConfig:
    return DistillConfig.model_validate({**SETTINGS, **more})


def test_both_losses_fall_and_the_teacher_sees_clean_texts_once(teacher, tmp_path, monkeypatch):
    from compressor.distill.teacher import TeacherOutputs

    seen = []
    fill = TeacherOutputs._fill

    def watched(self, *asked):
        seen.append(self._data)
        return fill(self, *asked)

    monkeypatch.setattr(TeacherOutputs, "_fill", watched)
    stage = Distill(config(epochs=8, mlm={"weight": 0.5, "share": 0.3}))
    facts = run_stage(stage, context(tmp_path, teacher), tmp_path / "out")
    curves = facts["curves"]
    assert set(curves) == {"logits", "mlm", "total"}
    assert curves["total"][0] == pytest.approx(curves["logits"][0] + 0.5 * curves["mlm"][0], rel=1e-5)
    for name in ("logits", "mlm"):
        assert np.mean(curves[name][-6:]) < np.mean(curves[name][:6])
    mask = load_masked_language_model(Checkpoint.open(tmp_path / "out"))
    assert mask.head
    assert len(seen) == 3, "validation, test and, once, the training texts"
    ids = {index for split in seen for item in split.encoded for index in item.ids}
    from compressor.pretrain.pieces import Pieces

    assert Pieces.load(teacher).mask_id not in ids
    assert load_compressed(tmp_path / "out").config.num_labels == 3


def test_a_killed_run_resumes_to_the_same_curves(teacher, tmp_path):
    stage = Distill(config(mlm={"weight": 0.5}, epochs=3, checkpoint_steps=4))
    whole = run_stage(stage, context(tmp_path / "a", teacher), tmp_path / "a" / "out")

    def stop(done: int, total: int, note: str = "") -> None:
        if note.startswith("loss") and done == 10:
            raise KeyboardInterrupt

    cut = context(tmp_path / "b", teacher)
    (tmp_path / "b" / "lost").mkdir()
    with pytest.raises(KeyboardInterrupt):
        stage.run(replace(cut, progress=stop), tmp_path / "b" / "lost")
    assert run_stage(stage, cut, tmp_path / "b" / "out")["curves"] == whole["curves"]
    first, second = (load_compressed(tmp_path / name / "out").state_dict() for name in "ab")
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("student", "trained"),
    [({"layers": 1}, True), ({"init": "slice", "layers": 1, "hidden_size": 16}, False)],
)
def test_the_teachers_head_is_taken_where_it_fits_the_student(teacher, tmp_path, student, trained):
    run_stage(Pretrain(PretrainConfig(epochs=0.1)), context(tmp_path / "domain", teacher), tmp_path / "adapted")
    adapted = Checkpoint.open(tmp_path / "adapted")
    stage = Distill(config(student=student, mlm={"weight": 0.5}, epochs=0.1, lr=1e-9))
    run_stage(stage, context(tmp_path, adapted), tmp_path / "out")
    before, after = (load_file(folder / HEAD) for folder in (adapted.path, tmp_path / "out"))
    assert before.keys() == after.keys()
    assert all(torch.allclose(before[name], after[name]) for name in before if trained)
    assert all((before[name].shape == after[name].shape) == trained for name in before if name.endswith("dense.weight"))


def test_the_pooler_of_the_student_still_learns(teacher, tmp_path):
    run_stage(Distill(config(mlm={"weight": 0.5})), context(tmp_path, teacher), tmp_path / "out")
    before, after = load_compressed(teacher).state_dict(), load_compressed(tmp_path / "out").state_dict()
    assert not torch.equal(before["bert.pooler.dense.weight"], after["bert.pooler.dense.weight"])


def test_a_tokenizer_without_a_mask_token_is_refused_before_any_work(tmp_path):
    where = context(tmp_path, tiny_checkpoint("bert", tmp_path / "maskless"))
    with pytest.raises(ModelError, match="no mask token"):
        Distill(config(mlm={})).requires(where)
