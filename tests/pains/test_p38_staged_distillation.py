"""P38: one staged recipe says which loss runs when; its curves are in the report, the teacher runs once, it resumes."""

import json
import shutil
from pathlib import Path

import pytest

from compressor.app.runs import run
from compressor.core.errors import RecipeError
from compressor.distill import teacher as teacher_module
from compressor.pipeline import Listener
from tests.compressor.tiny_data import tiny_dataset
from tests.models import LABELS, tiny_checkpoint

RECIPE = """
version: 1
teacher: {{model: {teacher}}}
data: {{dir: {data}}}
threads: 1
stages:
  - finetune: {{epochs: 8, lr: 3.0e-3, batch_size: 8}}
  - distill:
      student:
        init: new
        family: bert
        config: {{hidden_size: 24, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 48}}
      losses:  # first the intermediate layers, then the prediction
        - {{name: embeddings, until: 0.5}}
        - {{name: hidden, embeddings: false, until: 0.5}}
        - {{name: attention, until: 0.5}}
        - {{name: logits, after: 0.5, temperature: 1.0}}
      epochs: 10
      batch_size: 16
      lr: 5.0e-3
      checkpoint_steps: 4
"""
STEPS, TURN = 60, 30
FIRST, THEN = ("embeddings", "hidden", "attention"), ("logits",)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    data = tiny_dataset()
    tiny_checkpoint("bert", tmp_path / "teacher", layers=4)
    (tmp_path / "data").mkdir()
    for name, split in data.splits.items():
        rows = [f"{text}\t{LABELS[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        (tmp_path / "data" / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE.format(teacher=tmp_path / "teacher", data=tmp_path / "data"))
    return path


def curves(folder: Path) -> dict[str, list[float | None]]:
    report = json.loads((folder / "report.json").read_text())
    return next(row["curves"] for row in report["stages"] if row["stage"] == "distill")


def stopping_at(step: int) -> Listener:
    def progress(done: int, total: int, note: str = "") -> None:
        if done == step and total == STEPS and note.startswith("loss"):
            raise KeyboardInterrupt

    return Listener(progress=lambda entry: progress)


def test_a_staged_recipe(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forwards = []
    model = teacher_module.run_model
    monkeypatch.setattr(teacher_module, "run_model", lambda *given: forwards.append(1) or model(*given))
    run(recipe, tmp_path / "whole")
    whole = curves(tmp_path / "whole")
    assert set(whole) == {*FIRST, *THEN, "total"}
    for names, start, end in ((FIRST, 0, TURN), (THEN, TURN, STEPS)):
        for name in names:
            counted = [step for step, value in enumerate(whole[name]) if value is not None]
            assert counted == [*range(start, end)], f"'{name}' did not run when the recipe says"
            assert sum(whole[name][end - 3 : end]) < sum(whole[name][start : start + 3]), f"'{name}' did not fall"
    # 96 texts in batches of 32, and one batch each for validation and test.
    assert len(forwards) == 5, "the teacher read its texts more often than once"
    assert ">embeddings<" in (tmp_path / "whole" / "report.html").read_text()

    shutil.copytree(tmp_path / "whole", tmp_path / "cut", symlinks=True)
    (tmp_path / "cut" / "stages" / "02-distill.json").unlink()
    for step in (10, 42):  # once in each part
        with pytest.raises(KeyboardInterrupt):
            run(recipe, tmp_path / "cut", listener=stopping_at(step))
    run(recipe, tmp_path / "cut")
    assert curves(tmp_path / "cut") == whole
    assert len(forwards) == 10, "a resumed run asked the teacher again"


def test_a_loss_that_does_not_fit_is_refused_before_training(recipe: Path, tmp_path: Path) -> None:
    recipe.write_text(recipe.read_text().replace("num_attention_heads: 4", "num_attention_heads: 2"))
    trained = []
    listener = Listener(progress=lambda entry: lambda *given: trained.append(entry.id))
    with pytest.raises(RecipeError, match=r"has 2 attention heads and teacher layer 1 4") as error:
        run(recipe, tmp_path / "out", listener=listener)
    assert "minilmv2" in error.value.remedy
    assert not trained, "not even the teacher"
