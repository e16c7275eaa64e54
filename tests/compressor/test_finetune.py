from dataclasses import replace
from pathlib import Path

import pytest

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, RecipeError
from compressor.core.task import Task
from compressor.data.dataset import Split, TextDataset
from compressor.distill.config import DistillConfig
from compressor.distill.stage import Distill
from compressor.families.heads import find_task
from compressor.finetune import Finetune, FinetuneConfig
from compressor.models import load_compressed
from compressor.stage import stage_type
from tests.compressor.tiny_data import context, run_stage
from tests.models import LABELS, tiny_checkpoint, tiny_task_checkpoint


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_it_learns_the_datas_labels_and_leaves_its_input_alone(family: str, tmp_path: Path) -> None:
    base = tiny_checkpoint(family, tmp_path / "base")
    before = base.hash
    where = context(tmp_path, base)
    names = ("wait", *LABELS)
    where = context(tmp_path, base, data=type(where.data)(names, *(_shift(s) for s in where.data.splits.values())))
    stage = Finetune(FinetuneConfig(epochs=12, lr=2e-3, batch_size=8))
    facts = run_stage(stage, where, tmp_path / "out")
    assert facts["evaluation"]["test"]["value"] > 0.8
    assert len(facts["curves"]["total"]) == 12 * 12
    saved = Checkpoint.open(tmp_path / "out")
    assert saved.labels == names
    assert saved.compression["history"][-1]["stage"] == "finetune"
    assert load_compressed(saved.path).config.num_labels == 4
    assert (saved.path / "tokenizer.json").is_file()
    assert Checkpoint(base.path).hash == before


def test_recipes_find_it_by_name() -> None:
    assert stage_type("finetune") is Finetune


def _shift(split):
    return type(split)(split.texts, tuple(label + 1 for label in split.labels))


def test_several_labels_and_numbers_are_learnt_too(tmp_path: Path) -> None:
    base = tiny_checkpoint("bert", tmp_path / "base")
    plain = context(tmp_path, base).data
    many = tuple(tuple(float(index in (0, label + 1)) for index in range(4)) for label in range(3))
    cases: dict[Task, tuple[tuple[str, ...], tuple[object, ...]]] = {
        "multi-label-classification": (("text", *LABELS), many),
        "regression": (("score",), (1.0, 2.5, 4.0)),
    }
    for task, (names, values) in cases.items():
        splits = [Split(part.texts, tuple(values[label] for label in part.labels)) for part in plain.splits.values()]
        where = context(tmp_path / task, base, data=TextDataset(names, *splits, task=task))
        facts = run_stage(Finetune(FinetuneConfig(epochs=12, lr=2e-3, batch_size=8)), where, tmp_path / task / "out")
        assert facts["evaluation"]["test"]["value"] > 0.8
        saved = Checkpoint.open(tmp_path / task / "out")
        assert find_task(saved) == task
        assert saved.labels == names


def test_what_it_does_not_train_is_refused(tmp_path: Path) -> None:
    stage = Finetune(FinetuneConfig())
    tagger = tiny_task_checkpoint("token-classification", tmp_path / "tagger")
    with pytest.raises(ModelError, match="trained token-classification head"):
        stage.requires(context(tmp_path, tagger))
    where = context(tmp_path, tagger)
    tags = replace(where.data, task="token-classification")
    for made in (stage, Distill(DistillConfig.model_validate({"student": {"layers": 1}}))):
        with pytest.raises(RecipeError, match="does not train token-classification"):
            made.requires(context(tmp_path, tagger, data=tags))
    several = replace(where.data, task="multi-label-classification")
    with pytest.raises(RecipeError, match="distill does not train multi-label-classification"):
        Distill(DistillConfig.model_validate({"student": {"layers": 1}})).requires(
            context(tmp_path, tagger, data=several)
        )
    sentence = tiny_task_checkpoint("sentence-embedding", tmp_path / "sentence")
    stage.requires(context(tmp_path, sentence))
