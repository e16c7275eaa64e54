from pathlib import Path

import pytest

import compressor.app.stages  # noqa: F401  registers the stages
from compressor.core.errors import RecipeError
from compressor.recipe import load_recipe, recipe_schema

GOOD = """
version: 1
teacher: {model: somewhere}
data: {dir: data}
stages:
  - finetune: {epochs: 1}
  - quantize:
  - export: {to: [onnx], precisions: [fp32]}
accept: {size_mb: 20}
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "r.yaml"
    file.write_text(text)
    return file


def test_stages_get_their_position_and_name_as_id(tmp_path):
    recipe = load_recipe(write(tmp_path, GOOD))
    assert [stage.id for stage in recipe.stages] == ["01-finetune", "02-quantize", "03-export"]
    assert recipe.accept.limits() == {"size_mb": 20}


@pytest.mark.parametrize(
    ("old", "new", "place", "remedy"),
    [
        ("epochs: 1", "epoch: 1", r"stages\[0\]\.finetune\.epoch: unknown key", "did you mean 'epochs'"),
        ("- finetune", "- finetun", "unknown stage 'finetun'", "did you mean 'finetune'"),
        ("size_mb: 20", "size_gb: 20", r"accept\.size_gb: unknown key", "did you mean 'size_mb'"),
        ("stages:", "stage:", r"r\.yaml: stage: unknown key", "did you mean 'stages'"),
        ("dir: data", "directory: data", r"data\.directory: unknown key", "did you mean 'dir'"),
        (
            "to: [onnx]",
            "to: [onxx]",
            r"r\.yaml: stages\[2\]\.export\.to\[0\]: found 'onxx'; expected 'onnx', 'tflite'",
            "correct",
        ),
        ("to: [onnx]", "max_drop_points: -1", "max_drop_points: found -1; expected a number of at least 0", "correct"),
        ("to: [onnx]", "max_drop_points: .nan", "max_drop_points: found nan; expected a finite number", "correct"),
        ("version: 1", "version: 2", r"r\.yaml: version: found 2; expected 1", "correct"),
    ],
)
def test_a_wrong_key_is_named_with_the_nearest_known_one(tmp_path, old, new, place, remedy):
    with pytest.raises(RecipeError, match=place) as caught:
        load_recipe(write(tmp_path, GOOD.replace(old, new)))
    assert remedy in caught.value.remedy


def test_overrides_reach_nested_keys_and_stages_by_name_or_position(tmp_path):
    file = write(tmp_path, GOOD)
    settings = (
        "data.dir=other/place",
        "stages.finetune.epochs=3",
        "stages.2.export.lengths=[8, 16]",
        "accept.p95_ms=2.5",
    )
    recipe = load_recipe(file, settings)
    assert recipe.data.dir == Path("other/place")
    assert recipe.stages[0].config.epochs == 3
    assert recipe.stages[2].config.lengths == (8, 16)
    assert recipe.accept.p95_ms == 2.5


def test_an_override_reaches_a_stage_without_settings(tmp_path):
    recipe = load_recipe(write(tmp_path, GOOD), ("stages.quantize.precision=fp16",))
    assert recipe.stages[1].config.precision == "fp16"


@pytest.mark.parametrize("override", ["data.dir", "stages.prune.heads=1", "version.x=1"])
def test_an_override_that_fits_nowhere_is_told(tmp_path, override):
    with pytest.raises(RecipeError, match="--set"):
        load_recipe(write(tmp_path, GOOD), (override,))


def test_two_stages_of_one_id_are_refused(tmp_path):
    twice = GOOD.replace("finetune: {epochs: 1}", "finetune: {id: a}").replace("- quantize:", "- quantize: {id: a}")
    with pytest.raises(RecipeError, match="'a' is used twice"):
        load_recipe(write(tmp_path, twice))


@pytest.mark.parametrize("stage_id", ["../../escape", "a/b", ".hidden"])
def test_a_stage_id_that_would_leave_the_folder_is_refused(tmp_path, stage_id):
    with pytest.raises(RecipeError, match="cannot name a folder"):
        load_recipe(write(tmp_path, GOOD.replace("epochs: 1", f"id: {stage_id}")))


def test_every_recipe_that_ships_is_valid():
    files = sorted((Path(__file__).parents[2] / "recipes").glob("*.yaml"))
    assert files
    for file in files:
        assert load_recipe(file).stages


def test_the_schema_for_editors_knows_every_stage_and_key():
    schema = recipe_schema()
    stage = schema["properties"]["stages"]["items"]["anyOf"][0]
    assert {"finetune", "distill", "quantize", "export", "benchmark"} <= set(stage["properties"])
    assert "lengths" in schema["$defs"]["stage_export"]["properties"]
