"""The whole road at tiny size: teacher, student, three formats, times, verdict, report; then again from the cache."""

import json
import os
import shutil

import pytest
from typer.testing import CliRunner

from compressor.app.cli import app
from compressor.core.artifact import Artifact
from compressor.core.measurement import Measurement
from tests.models import keyword_split, tiny_checkpoint

RECIPE = """
version: 1
teacher: {{model: {teacher}}}
data: {{dir: {data}}}
threads: 1
stages:
  - finetune: {{epochs: 1, lr: 3.0e-3}}
  - distill:
      student: {{layers: 1, init: copy}}
      losses: [{{name: logits, temperature: 2.0}}, {{name: hidden, map: uniform}}]
      epochs: 1
      lr: 3.0e-3
  - quantize: {{precision: int8, method: dynamic}}
  - export: {{to: [onnx, tflite, tensorrt], precisions: [fp16, int8], lengths: [8, 16]}}
  - benchmark: {{devices: [host], threads: 1, runs: 60, processes: 4}}
accept: {{accuracy_drop_points: 50.0, size_mb: 5.0}}
"""
LABELS = ("cancel", "refund", "track")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("road")
    tiny_checkpoint("bert", folder / "teacher")
    (folder / "data").mkdir()
    for name, count, seed in (("train", 1600, 1), ("validation", 60, 2), ("test", 60, 3)):
        split = keyword_split(count, seed=seed)
        rows = [f"{text}\t{LABELS[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        (folder / "data" / f"{name}.tsv").write_text("\n".join(["text\tlabel", *dict.fromkeys(rows)]) + "\n")
    recipe = folder / "tiny.yaml"
    recipe.write_text(RECIPE.format(teacher=folder / "teacher", data=folder / "data"))
    return folder


def run(*arguments):
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


@pytest.fixture(scope="module")
def road(place):
    result = run(place / "tiny.yaml", "-o", place / "out")
    assert result.exit_code == 0, result.output
    return place / "out", result


def test_the_folders_of_the_design_are_there(road):
    out, _ = road
    stages = ["01-finetune", "02-distill", "03-quantize", "04-export", "05-benchmark"]
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == stages[:3]
    assert sorted(path.name for path in (out / "artifacts").iterdir()) == [
        "onnx-fp16", "onnx-int8", "tensorrt-fp16", "tensorrt-int8", "tflite-fp16", "tflite-int8",
    ]  # fmt: skip
    assert (out / "teacher").samefile(out / "checkpoints" / "01-finetune")
    assert (out / "student").samefile(out / "checkpoints" / "03-quantize")
    assert {"report.md", "report.html", "report.json", "log.jsonl"} <= {path.name for path in out.iterdir()}
    assert not [path for path in (out / "artifacts").iterdir() if path.name.startswith(".")]


def test_every_artifact_is_whole_and_knows_its_teacher(road):
    out, _ = road
    for folder in (out / "artifacts").iterdir():
        artifact = Artifact.load(folder)
        assert artifact.manifest.precision in folder.name
        scores = {"teacher", "checkpoint", "artifact", "examples", "checkpoint_ece", "artifact_ece"}
        assert set(artifact.manifest.reference) == scores
        assert artifact.manifest.reference["teacher"] > 0.6


def test_every_run_is_kept_beside_the_artifacts(road):
    out, _ = road
    names = {path.stem for path in (out / "measurements").iterdir()}
    assert names == {
        "host-onnx-fp16", "host-onnx-int8", "host-tflite-fp16", "host-tflite-int8", "host-teacher-onnx-int8",
        "host-teacher-torch-fp32-padded-16",
    }  # fmt: skip
    for path in (out / "measurements").iterdir():
        measurement = Measurement.load(path)
        assert len(measurement.runs) == 60
        assert set(measurement.runs.length) <= ({16} if "padded" in path.stem else set(range(3, 17)))


def test_the_report_says_what_was_found(road):
    out, result = road
    report = json.loads((out / "report.json").read_text())
    assert report["verdict"] == "pass"
    rows = {row["name"]: row for row in report["artifacts"]}
    assert rows["tensorrt-fp16"]["note"] == "not run on hardware"
    assert rows["tensorrt-fp16"]["p50_ms"] is None
    assert rows["tflite-int8"]["p50_ms"] > 0
    stages = {row["id"]: row for row in report["stages"]}
    assert stages["02-distill"]["parameters"] < stages["01-finetune"]["parameters"]
    assert stages["02-distill"]["curves"]
    pairs = {(item["artifact"], item["baseline"]) for item in report["speed_ups"]}
    assert ("tflite-int8", "teacher-onnx-int8") in pairs
    assert ("faster at the median" in result.stdout) != ("No speed-up is shown" in result.stdout)
    for word in ("tflite-int8", "02-distill", "verdict: pass"):
        assert word in result.stdout


def test_a_second_run_finds_everything_done(road, place):
    out, _ = road
    before = {path: path.stat().st_mtime_ns for path in (out / "artifacts").rglob("model.*")}
    again = run(place / "tiny.yaml", "-o", out, "--json")
    assert again.exit_code == 0, again.output
    document = json.loads(again.stdout)
    assert {row["status"] for row in document["stages"]} == {"cached"}
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ("accept.size_mb=0.001", 1, ""),
        ("accept.artifacts=tflite-in8", 2, "matches none of"),
        ("stages.benchmark.devices=[hots]", 2, "did you mean 'host'"),
        ("stages.benchmark.devices=[jetson-orin-nano]", 2, "expected an address"),
        ("stages.export.lengths=[8, 9000]", 2, "from 3 to 64"),
        ("stages.distill.teacher=01-finetun", 2, "did you mean '01-finetune'"),
    ],
)
def test_a_missed_limit_and_a_wrong_name_end_with_their_code(road, place, tmp_path, setting, code, words):
    out, _ = road
    copy = shutil.copytree(out, tmp_path / "out", symlinks=True)
    result = run(place / "tiny.yaml", "-o", copy, "--set", setting)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    # What is wrong is known before anything is done again.
    assert "ran" not in result.stderr


@pytest.mark.parametrize("cut", ["  - benchmark", "  - export"])
def test_limits_that_nothing_could_be_held_to_are_refused(place, tmp_path, cut):
    lines = (place / "tiny.yaml").read_text().replace("size_mb: 5.0", "size_mb: 5.0, p95_ms: 9.0").splitlines()
    kept = [line for line in lines if not line.startswith((cut, "  - benchmark"))]
    (tmp_path / "cut.yaml").write_text("\n".join(kept))
    result = run(tmp_path / "cut.yaml", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "'accept'" in result.stderr


def test_losses_that_do_not_fit_are_refused_before_any_training(place, tmp_path):
    text = (place / "tiny.yaml").read_text().replace("map: uniform", "map: [7]")
    recipe = tmp_path / "misfit.yaml"
    recipe.write_text(text)
    result = run(recipe, "-o", tmp_path / "out")
    assert result.exit_code == 2 and "layer" in result.output, result.output
    assert not list((tmp_path / "out").rglob("*.safetensors"))


def test_a_trained_model_needs_no_finetuning_and_keeps_its_own_label_order(road, place, tmp_path):
    from transformers import AutoModelForSequenceClassification

    out, _ = road
    model = AutoModelForSequenceClassification.from_pretrained(out / "teacher")
    order = [2, 0, 1]
    model.classifier.weight.data = model.classifier.weight.data[order]
    model.classifier.bias.data = model.classifier.bias.data[order]
    names = [LABELS[index] for index in order]
    model.config.id2label, model.config.label2id = dict(enumerate(names)), {n: i for i, n in enumerate(names)}
    teacher = tmp_path / "teacher"
    shutil.copytree(out / "teacher", teacher)
    model.save_pretrained(teacher)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        f"version: 1\nteacher: {{model: {teacher}}}\ndata: {{dir: {place / 'data'}}}\nthreads: 1\nstages:\n"
        "  - export: {to: [onnx], precisions: [fp32], lengths: [8, 16]}\naccept: {accuracy_drop_points: 0.0}\n"
    )
    result = run(recipe, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    artifact = Artifact.load(tmp_path / "out" / "artifacts" / "onnx-fp32")
    assert list(artifact.labels) == names
    assert artifact.manifest.reference["teacher"] == artifact.manifest.reference["artifact"] > 0.6


def test_a_student_of_the_run_loads_with_one_call(road):
    import compressor

    out, _ = road
    model = compressor.load_compressed(out / "student")
    assert model.config.num_hidden_layers == 1


def test_a_plan_predicts_the_parameters_that_were_found(road, place):
    out, _ = road
    planned = CliRunner().invoke(app, ["plan", str(place / "tiny.yaml"), "-o", str(out), "--json"])
    stages = {row["id"]: row for row in json.loads(planned.stdout)["stages"]}
    found = {row["id"]: row for row in json.loads((out / "report.json").read_text())["stages"]}
    for name in ("01-finetune", "02-distill"):
        assert stages[name]["parameters"] == found[name]["parameters"]
    assert all(row["cached"] for row in stages.values())


def test_a_folder_that_is_not_ours_is_left_alone(place, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = run(place / "tiny.yaml", "-o", tmp_path)
    assert result.exit_code == 2
    assert "--force" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_leaves_what_was_there(road, place, tmp_path):
    out, _ = road
    small = tmp_path / "small"
    small.mkdir()
    blocks = sum(-(-path.stat().st_size // 4096) for path in (out / "artifacts" / "onnx-int8").iterdir())
    if os.system(f"mount -t tmpfs -o size={4 * (blocks + 12)}k tmpfs '{small}' 2>/dev/null") != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        shutil.copytree(out / "artifacts" / "onnx-int8", small / "artifact")
        before = {path.name: path.read_bytes() for path in (small / "artifact").iterdir()}
        result = CliRunner().invoke(
            app, ["convert", str(out / "student"), "--to", "onnx", "--lengths", "8,16", "-o", str(small / "artifact")]
        )
        assert result.exit_code == 2, result.output
        assert "is full" in result.stderr
        assert {path.name: path.read_bytes() for path in (small / "artifact").iterdir()} == before
        assert [path.name for path in small.iterdir()] == ["artifact"]
    finally:
        os.system(f"umount '{small}'")
