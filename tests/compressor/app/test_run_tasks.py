"""Recipes of other tasks: a number that is learnt, and a tagger that is taken as it is."""

import json

import pytest
from typer.testing import CliRunner

from compressor.app.cli import app
from compressor.app.judge import predict
from compressor.core.artifact import Artifact
from compressor.core.measurement import Measurement
from tests.models import keyword_split, tiny_checkpoint, tiny_task_checkpoint

RECIPE = """
version: 1
task: {task}
teacher: {{model: {teacher}}}
data: {{dir: {data}}}
threads: 1
stages:
{stages}
"""
LEARNT = """
  - finetune: {epochs: 12, lr: 2.0e-3, batch_size: 8}
  - export: {to: [onnx], precisions: [int8], lengths: [8, 16]}
"""
TAKEN = """
  - quantize: {precision: int8, method: dynamic}
  - export: {to: [onnx], precisions: [int8], lengths: [8, 16]}
  - benchmark: {devices: [host], threads: 1, runs: 4, processes: 2, baselines: false}
"""


def run(folder, task, stages, teacher, rows_of):
    data = folder / "data"
    data.mkdir()
    for name, count, seed in (("train", 120, 1), ("test", 60, 2)):
        (data / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows_of(keyword_split(count, seed=seed)))))
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(task=task, teacher=teacher, data=data, stages=stages))
    result = CliRunner().invoke(app, ["run", str(recipe), "-o", str(folder / "out")])
    assert result.exit_code == 0, result.output
    return folder / "out"


def test_a_number_is_learnt_and_exported(tmp_path):
    def rows(split):
        return [{"text": text, "score": 1.5 * label} for text, label in zip(split.texts, split.labels, strict=True)]

    out = run(tmp_path, "regression", LEARNT, tiny_checkpoint("bert", tmp_path / "m").path, rows)
    artifact = Artifact.load(out / "artifacts" / "onnx-int8")
    assert (artifact.io.task, artifact.labels) == ("regression", ("score",))
    assert artifact.manifest.reference["artifact"] > 0.7


@pytest.fixture
def tagger(tmp_path, trained):
    return tiny_task_checkpoint("token-classification", tmp_path / "m", body=trained).path


def test_a_tagger_is_quantized_exported_and_timed(tmp_path, tagger):
    def rows(split):
        for answer in predict(tagger, split.texts[:60], threads=1):
            tags = ["O"] * len(answer.text.split())
            for entity in answer.entities:
                first = len(answer.text[: entity.start].split())
                for place in range(first, first + len(entity.text.split())):
                    tags[place] = f"{'B' if place == first else 'I'}-{entity.label}"
            yield {"tokens": answer.text.split(), "tags": tags}

    out = run(tmp_path, "token-classification", TAKEN, tagger, rows)
    artifact = Artifact.load(out / "artifacts" / "onnx-int8")
    assert artifact.manifest.reference["checkpoint"] == 1.0
    assert artifact.manifest.reference["artifact"] > 0.5
    (measured,) = map(Measurement.load, (out / "measurements").glob("*.json"))
    assert (measured.subject, len(measured.runs)) == ("onnx-int8", 4)
