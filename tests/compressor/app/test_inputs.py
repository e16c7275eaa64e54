from dataclasses import replace
from pathlib import Path

import pytest

import compressor.app.stages  # noqa: F401  registers the stages
from compressor.app.inputs import profile_of, read_inputs
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError, UsageError
from compressor.recipe import load_recipe
from tests.compressor.tiny_data import context
from tests.models import keyword_split


def recipe(folder: Path, trained: Checkpoint, device: str) -> Path:
    for name, count in (("train", 30), ("validation", 12), ("test", 12)):
        split = keyword_split(count, seed=count)
        rows = [f"{text}\t{trained.labels[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        (folder / f"{name}.tsv").write_text("\n".join(("text\tlabel", *rows)) + "\n")
    file = folder / "recipe.yaml"
    file.write_text(
        f"version: 1\nteacher: {{model: {trained.path}}}\ndata: {{dir: {folder}}}\n"
        f"stages:\n  - export: {{to: [onnx], device: {device}}}\n"
    )
    return file


def test_a_misspelt_device_is_told_before_any_stage(tmp_path: Path, trained: Checkpoint) -> None:
    with pytest.raises(UsageError, match="unknown device 'snapdragn-865'") as caught:
        read_inputs(load_recipe(recipe(tmp_path, trained, "snapdragn-865")), tmp_path / "demo")
    assert "snapdragon-865" in caught.value.remedy


def test_a_stage_asks_its_context_for_a_device(tmp_path: Path, trained: Checkpoint) -> None:
    inputs = read_inputs(load_recipe(recipe(tmp_path, trained, "mobile-cpu")), tmp_path / "demo")
    where = context(tmp_path, trained, profiles=inputs.profiles)
    assert where.device("jetson-orin-nano") == profile_of("jetson-orin-nano")
    with pytest.raises(RecipeError, match="not known here"):
        replace(where, profiles=None).device("host")
