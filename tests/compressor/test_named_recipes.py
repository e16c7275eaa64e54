"""Every recipe that comes with the project parses, plans, and asks of its models what they have."""

from pathlib import Path

import pytest

from compressor.app.planning import plan
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.data.demo_model import demo_teacher
from compressor.distill.losses import needs_of
from compressor.distill.outputs import model_shape
from compressor.distill.progressive import plan_parts
from compressor.distill.stage import Distill
from compressor.models import load_config
from compressor.recipe import load_recipe
from compressor.shapes import parameters_of

RECIPES = sorted((Path(__file__).resolve().parents[2] / "recipes").glob("*.yaml"))
NAMED = ("distilbert", "tinybert", "minilm", "minilmv2", "mobilebert")


@pytest.fixture(scope="module")
def teacher() -> Checkpoint:
    try:
        return Checkpoint.open(demo_teacher())
    except ModelError as error:
        pytest.skip(error.message)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_it_parses_and_its_checks_pass(path: Path, teacher: Checkpoint, tmp_path: Path) -> None:
    planned = plan(path, tmp_path / "run", overrides=("data.dir=demo:intents",))
    assert [stage.id for stage in planned.stages] == [entry.id for entry in load_recipe(path).stages]
    assert all(stage.parameters > 0 for stage in planned.stages)


@pytest.mark.parametrize("name", NAMED)
def test_its_losses_fit_its_models(name: str, teacher: Checkpoint) -> None:
    recipe = load_recipe(next(path for path in RECIPES if path.stem == name))
    config = load_config(teacher)
    configs = {}
    for entry in recipe.stages:
        stage = entry.build()
        config, before = stage.forecast(config), config
        configs[entry.id] = config
        if isinstance(stage, Distill):
            named = stage.config.teacher
            shapes = model_shape(config), model_shape(before if named is None else configs[named])
            ours, _ = needs_of(stage.config.losses, *shapes)
            assert ours.states or ours.layers or any(loss.name == "logits" for loss in stage.config.losses)
            if stage.config.progressive:
                parts = plan_parts(stage.config.losses, *shapes)
                assert [len(part.layers) for part in parts] == [4] * 6
    assert parameters_of(config) < parameters_of(load_config(teacher))
    assert path_header(name).startswith("# ")


def path_header(name: str) -> str:
    return next(path for path in RECIPES if path.stem == name).read_text(encoding="utf-8")
