"""A transformer optimiser that fuses nothing says so; what it fuses is counted, and must pay to be kept."""

import json
from dataclasses import replace

import pytest

from compressor.core.artifact import Artifact
from compressor.core.errors import UsageError
from compressor.models import load_compressed
from export.build import export_artifacts
from export.onnx.tune import Fusion, fuse, judge
from export.source import ExportRequest
from tests.models import SENTENCES, tiny_checkpoint

LAYERS = 2
REQUEST = ExportRequest(
    formats=("onnx",), precisions=("fp32",), lengths=(8, 16), parity_texts=SENTENCES, parity_source="test", name="t",
    tune=True, tune_ratio=lambda candidate, baseline, cases: 0.5,
)  # fmt: skip


def exported(checkpoint, folder, ratio: float = 0.5):
    request = replace(REQUEST, tune_ratio=lambda candidate, baseline, cases: ratio)
    return export_artifacts(checkpoint, request, folder).artifacts


def test_every_layer_of_a_bert_gets_its_attention(checkpoint_of, tmp_path):
    baseline, tuned = exported(checkpoint_of("bert"), tmp_path)
    assert tuned.name == f"{baseline.name}-ort"
    assert tuned.manifest.statistics.operators["Attention"] == LAYERS
    assert "Attention" not in baseline.manifest.statistics.operators
    (attempt,) = (item for item in tuned.manifest.attempts if "fused" in item["rung"])
    assert attempt["accepted"]
    assert f"Attention {LAYERS}" in attempt["reason"]
    assert json.loads((tuned.path / "parity.json").read_text())["max_error"] <= 1e-4
    assert tuned.size_mb <= 1.02 * baseline.size_mb


def test_what_does_not_pay_is_rolled_back_and_recorded(checkpoint_of, tmp_path):
    (baseline,) = exported(checkpoint_of("bert"), tmp_path, ratio=1.01)
    (attempt,) = (item for item in baseline.manifest.attempts if "fused" in item["rung"])
    assert not attempt["accepted"]
    assert "rolled back: 1.010 times" in attempt["reason"]
    assert not list(tmp_path.glob("*-ort"))
    Artifact.load(baseline.path)


def test_shared_layers_stay_shared(tmp_path):
    """ALBERT at a size at which weights, not graph, are what a file holds."""
    checkpoint = tiny_checkpoint("albert", tmp_path / "albert", layers=6)
    made = exported(checkpoint, tmp_path / "out")
    assert all(artifact.size_mb <= 1.02 * made[0].size_mb for artifact in made)
    (attempt,) = (item for item in made[0].manifest.attempts if "fused" in item["rung"])
    assert "Attention 6" not in attempt["reason"]
    assert "attention" in attempt["reason"]


def test_too_few_attentions_are_explained(checkpoint_of, tmp_path, monkeypatch):
    checkpoint = checkpoint_of("bert")
    assert load_compressed(checkpoint.path).config.num_hidden_layers == LAYERS
    baseline, _ = exported(checkpoint, tmp_path)
    fusion = fuse(baseline.model_path, tmp_path / "fused.onnx", layers=3, heads=4, hidden=32)
    assert "in 2 of 3 layers" in fusion.note


@pytest.mark.parametrize(
    ("operators", "after", "ratio", "kept", "part"),
    [
        ({"Attention": 2}, 100, 0.9, True, "kept: 0.900 times"),
        ({"Attention": 2}, 100, 0.98, False, "rolled back: 0.980 times"),
        ({}, 100, 0.5, False, "nothing fused"),
        ({"Attention": 2}, 200, 0.5, False, "stored more than once"),
        ({"Attention": 2}, 100, None, False, "not measured"),
    ],
)
def test_the_verdict(operators, after, ratio, kept, part):
    fusion = Fusion(layers=2, operators=operators, bytes_before=100, bytes_after=after, note="")
    accepted, reason = judge(fusion, ratio)
    assert accepted is kept
    assert part in reason


def test_tuning_is_for_onnx(tmp_path):
    from compressor.app.convert import convert

    with pytest.raises(UsageError, match="only onnx"):
        convert(tmp_path, to="tflite", output=tmp_path / "x", tune=True)
