"""P20: a rule for one family holds wherever the family is known, and before any stage runs."""

import pytest

import devices.profiles as profiles
from compressor.app.convert import convert
from compressor.app.latency import bench
from compressor.app.planning import plan
from compressor.app.runs import run
from compressor.core.artifact import Artifact
from compressor.core.device import Illegal
from compressor.core.errors import IllegalOnDeviceError, UsageError
from compressor.finetune import Finetune
from tests.models import LABELS, keyword_split, tiny_checkpoint

RULES = (
    Illegal(format="onnx", precision="fp16", families=("bert",), reason="it overflows there", instead="onnx int8"),
    Illegal(format="onnx", precision="int8", families=("albert",), reason="no kernels", instead="onnx fp16"),
)
RECIPE = """
version: 1
teacher: {{model: {teacher}}}
data: {{dir: {data}}}
threads: 1
stages:
  - finetune: {{epochs: 1}}
  - export: {{to: [onnx], precisions: [{precisions}], lengths: [16]{more}}}
"""


@pytest.fixture(autouse=True)
def rules(monkeypatch):
    """The host's profile with two rules for two families."""
    host = profiles.load_profile("host").model_copy(update={"illegal": RULES})
    real = profiles.load_profile
    monkeypatch.setattr(profiles, "load_profile", lambda name: host if name == "host" else real(name))


@pytest.fixture
def recipe(tmp_path):
    tiny_checkpoint("bert", tmp_path / "teacher")
    (tmp_path / "data").mkdir()
    for name, seed in (("train", 1), ("validation", 2), ("test", 3)):
        split = keyword_split(40, seed=seed)
        rows = [f"{text}\t{LABELS[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        (tmp_path / "data" / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(dict.fromkeys(rows)) + "\n")

    def write(precisions, *, more="", stages=""):
        file = tmp_path / "recipe.yaml"
        values = {"teacher": tmp_path / "teacher", "data": tmp_path / "data", "precisions": precisions, "more": more}
        file.write_text(RECIPE.format(**values) + stages)
        return file

    return write


@pytest.fixture
def ran(monkeypatch):
    """Ids of the stages that began."""
    began = []
    monkeypatch.setattr(Finetune, "run", lambda self, context, output: began.append(self.name) or 1 / 0)
    return began


def test_convert_refuses_the_family_and_not_the_others(checkpoint_of, tmp_path):
    with pytest.raises(IllegalOnDeviceError, match="onnx fp16 on host: it overflows there") as caught:
        convert(checkpoint_of("bert").path, to="onnx", precision="fp16", output=tmp_path / "a", device="host")
    assert caught.value.remedy == "use onnx int8"
    assert not (tmp_path / "a").exists()
    with pytest.raises(IllegalOnDeviceError, match="no kernels"):
        convert(checkpoint_of("albert").path, to="onnx", precision="int8", output=tmp_path / "b", device="host")
    made = convert(checkpoint_of("bert").path, to="onnx", precision="int8", output=tmp_path / "c", device="host")
    assert made.manifest.precision == "int8"


def test_a_recipe_is_refused_before_any_stage_runs(recipe, ran, tmp_path):
    file = recipe("int8, fp16", more=", device: host")
    with pytest.raises(IllegalOnDeviceError, match="02-export: onnx fp16 of bert on host: it overflows there"):
        run(file, tmp_path / "out")
    assert ran == []
    assert [(it.device, it.what) for it in plan(file, tmp_path / "out").refused] == [("host", "onnx fp16")]


def test_what_the_ladder_may_fall_back_to_keeps_a_recipe_legal(recipe, ran, tmp_path):
    file = recipe("int4", more=", device: host, max_drop_points: 1.0")  # to INT8, past FP16
    with pytest.raises(ZeroDivisionError):
        run(file, tmp_path / "out")
    assert ran == ["finetune"]


def test_a_benchmark_of_nothing_the_device_runs_is_refused_before_any_stage_runs(recipe, ran, tmp_path):
    stages = "  - benchmark: {devices: [host], runs: 4}\n"
    with pytest.raises(UsageError, match=r"nothing that is exported \(onnx fp16\) can be measured on host"):
        run(recipe("fp16", stages=stages), tmp_path / "out")
    with pytest.raises(ZeroDivisionError):
        run(recipe("fp16, int8", stages=stages), tmp_path / "out")
    assert ran == ["finetune"]


def test_an_artifact_of_the_family_is_not_measured(onnx_artifacts):
    assert Artifact.load(onnx_artifacts / "onnx-fp16").family == "bert"
    with pytest.raises(IllegalOnDeviceError, match="it overflows there"):
        bench(onnx_artifacts / "onnx-fp16", runs=4)
