import json
import shutil
from typing import ClassVar

import pytest
from filelock import FileLock

from compressor import pipeline
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import FolderError, RecipeError, StageError
from compressor.data.dataset import Split, TextDataset
from compressor.pipeline import Inputs
from compressor.recipe import load_recipe
from compressor.stage import Stage, StageConfig, register

DATA = TextDataset(("a", "b"), Split(("x", "y"), (0, 1)), Split(("x",), (0,)), Split(("y",), (1,)))


class AppendConfig(StageConfig):
    word: str = "hello"
    fail: bool = False


@register
class AppendStage(Stage[AppendConfig]):
    """Copies the checkpoint and adds a word to a file: enough to see what ran on what."""

    name = "test-append"
    config_type = AppendConfig
    produces = "checkpoint"
    ran: ClassVar[list[str]] = []

    def requires(self, context):
        pass

    def run(self, context, output):
        self.ran.append(self.config.word)
        for file in context.current.path.iterdir():
            if file.name != ".compressor.json":
                shutil.copyfile(file, output / file.name)
        words = output / "words.txt"
        words.write_text((words.read_text() if words.exists() else "") + self.config.word + " ")
        (context.scratch / "state").write_text("kept for a resume")
        if self.config.fail:
            raise StageError("broken on purpose", remedy="none")
        return {"word": self.config.word}

    def ensures(self, context, output):
        assert (output / "words.txt").is_file()


@pytest.fixture
def road(tmp_path, checkpoint_of):
    AppendStage.ran.clear()
    inputs = Inputs(teacher=Checkpoint.open(checkpoint_of("bert").path), data=DATA, threads=1)

    def go(words=("one", "two", "three"), *, fail=None, folder="run", **options):
        stages = "".join(f"  - test-append: {{word: {word}, fail: {str(word == fail).lower()}}}\n" for word in words)
        file = tmp_path / "r.yaml"
        file.write_text(f"version: 1\nteacher: {{model: m}}\ndata: {{dir: d}}\nstages:\n{stages}")
        AppendStage.ran.clear()
        return pipeline.run(load_recipe(file), inputs, tmp_path / folder, **options)

    return go


def statuses(result):
    return [record.status for record in result.records]


def test_checkpoints_flow_from_stage_to_stage(road, tmp_path):
    result = road()
    assert (tmp_path / "run" / "student" / "words.txt").read_text() == "one two three "
    assert (tmp_path / "run" / "checkpoints" / "02-test-append" / "words.txt").read_text() == "one two "
    assert statuses(result) == ["ran"] * 3


def test_a_second_run_does_nothing(road):
    road()
    result = road()
    assert statuses(result) == ["cached"] * 3
    assert AppendStage.ran == []


def test_a_changed_setting_redoes_its_stage_and_those_after_it(road, tmp_path):
    road()
    result = road(("one", "deux", "three"))
    assert statuses(result) == ["cached", "ran", "ran"]
    assert (tmp_path / "run" / "student" / "words.txt").read_text() == "one deux three "


def test_an_altered_result_is_made_again(road, tmp_path):
    road()
    (tmp_path / "run" / "checkpoints" / "02-test-append" / "words.txt").write_text("tampered")
    assert statuses(road()) == ["cached", "ran", "cached"]


def test_a_failed_stage_keeps_what_was_done_and_its_scratch(road, tmp_path):
    with pytest.raises(StageError):
        road(fail="two")
    run = tmp_path / "run"
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["01-test-append"]
    scratch = [path for path in (run / ".work").iterdir() if path.name.startswith("02-")]
    assert [(path / "state").read_text() for path in scratch] == ["kept for a resume"]
    assert statuses(road()) == ["cached", "ran", "ran"]


def test_from_until_and_force(road):
    road()
    assert statuses(road(from_stage="02-test-append")) == ["cached", "ran", "ran"]
    assert statuses(road(until="02-test-append")) == ["cached", "cached"]
    assert statuses(road(force=True)) == ["ran"] * 3
    with pytest.raises(RecipeError, match="is no stage") as caught:
        road(until="02-test-apend")
    assert "02-test-append" in caught.value.remedy


def test_results_of_a_removed_stage_are_removed(road, tmp_path):
    road(("one", "two"))
    road(("one",))
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["01-test-append"]
    assert (tmp_path / "run" / "student" / "words.txt").read_text() == "one "


def test_a_foreign_folder_is_left_alone(road, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("mine")
    with pytest.raises(FolderError):
        road()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_plan_knows_what_is_cached_without_running(road, tmp_path, checkpoint_of):
    road()
    file = tmp_path / "r.yaml"
    recipe = load_recipe(file)
    inputs = Inputs(teacher=Checkpoint.open(checkpoint_of("bert").path), data=DATA, threads=1)
    AppendStage.ran.clear()
    assert [stage.cached for stage in pipeline.plan(recipe, inputs, tmp_path / "run")] == [True] * 3
    changed = load_recipe(file, ("stages.1.test-append.word=deux",))
    assert [stage.cached for stage in pipeline.plan(changed, inputs, tmp_path / "run")] == [True, False, False]
    assert AppendStage.ran == []


def test_other_data_or_another_seed_redo_everything(road, tmp_path, checkpoint_of):
    road()
    recipe = load_recipe(tmp_path / "r.yaml")
    other = TextDataset(("a", "b"), Split(("x", "z"), (0, 1)), Split(("x",), (0,)), Split(("y",), (1,)))
    inputs = Inputs(teacher=Checkpoint.open(checkpoint_of("bert").path), data=other, threads=1)
    assert not any(stage.cached for stage in pipeline.plan(recipe, inputs, tmp_path / "run"))


def test_the_log_has_one_json_line_a_stage(road, tmp_path):
    road()
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [line["stage"] for line in lines if "stage" in line] == [f"0{n}-test-append" for n in (1, 2, 3)]


def test_a_result_that_comes_out_differently_makes_the_rest_stale(road, tmp_path, monkeypatch):
    road()
    (tmp_path / "run" / "checkpoints" / "01-test-append" / "words.txt").write_text("tampered")
    real = AppendStage.run

    def otherwise(self, context, output):
        facts = real(self, context, output)
        (output / "words.txt").write_text(f"other {self.config.word} ")
        return facts

    monkeypatch.setattr(AppendStage, "run", otherwise)
    assert statuses(road()) == ["ran", "ran", "ran"]


def test_two_runs_do_not_share_a_folder(road, tmp_path):
    road()
    with FileLock(tmp_path / "run" / ".lock"), pytest.raises(FolderError, match="another run is working"):
        road()


def test_scratch_of_an_abandoned_setting_is_removed(road, tmp_path):
    with pytest.raises(StageError):
        road(fail="two")
    with pytest.raises(StageError):
        road(("one", "deux"), fail="deux")
    assert len([path for path in (tmp_path / "run" / ".work").iterdir() if path.name.startswith("02-")]) == 1


def test_a_file_that_the_settings_name_is_part_of_the_key(road, tmp_path, monkeypatch):
    named = tmp_path / "named.txt"
    named.write_text("first")
    monkeypatch.setattr(AppendStage, "files", lambda self: (named,) if self.config.word == "two" else ())
    road()
    assert statuses(road()) == ["cached"] * 3
    named.write_text("second")
    assert statuses(road()) == ["cached", "ran", "ran"]
