"""``plan`` foretells the parameters of what ``run`` makes, through every stage that changes the shape."""

import pytest

from compressor.app.planning import plan
from compressor.app.runs import run
from compressor.core.errors import UsageError
from compressor.models import load_compressed, unique_parameters
from tests.models import keyword_split, tiny_checkpoint

RECIPE = """
version: 1
teacher: {{model: {teacher}}}
data: {{dir: {data}}}
threads: 1
stages:
  - finetune: {{epochs: 1, lr: 3.0e-3}}
  - prune: {{heads: 0.25, ffn: 0.3, multiple_of: 8, uniform: true, drop_layers: 1}}
  - share: {{groups: 1, init: best}}
  - factorize: {{rank: 8}}
  - distill: {{teacher: 01-finetune, losses: [{{name: logits}}], epochs: 1, lr: 3.0e-3}}
  - distill: {{student: {{layers: 1, init: copy}}, losses: [{{name: logits}}], epochs: 0.2, lr: 1.0e-3}}
  - trim: {{max_unknown: 0.2}}
"""
LABELS = ("cancel", "refund", "track")


@pytest.fixture
def recipe(tmp_path):
    tiny_checkpoint("bert", tmp_path / "teacher", layers=3)
    (tmp_path / "data").mkdir()
    for name, count, seed in (("train", 1600, 1), ("validation", 60, 2), ("test", 60, 3)):
        split = keyword_split(count, seed=seed)
        rows = [f"{text}\t{LABELS[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        (tmp_path / "data" / f"{name}.tsv").write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.format(teacher=tmp_path / "teacher", data=tmp_path / "data"))
    return file


def test_a_dry_run_and_a_run_agree_to_the_parameter(recipe, tmp_path):
    foretold = [stage.parameters for stage in plan(recipe, tmp_path / "run").stages]
    outcome = run(recipe, tmp_path / "run")
    found = [
        unique_parameters(load_compressed(tmp_path / "run" / "checkpoints" / record.id))
        for record in outcome.result.records
    ]
    assert found[:-1] == foretold[:-1]
    assert found[-1] <= foretold[-1]  # how many pieces stay, only the text knows
    assert all(stage.cached for stage in plan(recipe, tmp_path / "run").stages)
    history = outcome.result.context.current.compression["history"]
    assert [step["stage"] for step in history] == [
        "finetune", "prune", "share", "factorize", "distill", "distill", "trim",
    ]  # fmt: skip


@pytest.mark.parametrize("precision", ["fp16", "mixed", "w8a16", "w8a8"])
def test_every_precision_of_an_npu_has_a_forecast_of_bytes(recipe, tmp_path, precision):
    stages = recipe.read_text().partition("  - prune")[0]
    export = f"  - export: {{to: [onnx-qnn], precisions: [{precision}], lengths: [16], device: snapdragon-8gen3}}\n"
    recipe.write_text(stages + export)
    planned = plan(recipe, tmp_path / "run")
    (artifact,) = planned.artifacts
    parameters = planned.stages[0].parameters
    assert artifact.estimated_bytes == parameters * (2 if precision == "fp16" else 1)


def test_a_precision_that_a_format_never_has_is_refused_before_the_first_stage(recipe, tmp_path):
    stages = recipe.read_text().partition("  - prune")[0]
    recipe.write_text(f"{stages}  - export: {{to: [onnx], precisions: [w8a8], lengths: [16]}}\n")
    with pytest.raises(UsageError, match="onnx cannot be made in w8a8; expected one of fp32, fp16, int8, int4"):
        run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_precision_that_none_of_the_formats_has_is_not_dropped_in_silence(recipe, tmp_path):
    stages = recipe.read_text().partition("  - prune")[0]
    recipe.write_text(f"{stages}  - export: {{to: [onnx], precisions: [int8, mixed], lengths: [16]}}\n")
    with pytest.raises(UsageError, match="there is no mixed file of onnx; expected some of fp32") as caught:
        run(recipe, tmp_path / "run")
    assert "'mixed: true' in a quantize stage" in caught.value.remedy
    recipe.write_text(f"{stages}  - export: {{to: [onnx], precisions: [int8, w8a8], lengths: [16]}}\n")
    with pytest.raises(UsageError, match="there is no w8a8 file of onnx"):
        run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()
