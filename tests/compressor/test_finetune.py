from pathlib import Path

import pytest

from compressor.core.checkpoint import Checkpoint
from compressor.finetune import Finetune, FinetuneConfig
from compressor.models import load_compressed
from compressor.stage import stage_type
from tests.compressor.tiny_data import context, run_stage
from tests.models import LABELS, tiny_checkpoint


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
