"""P16: nobody could make the official INT8 MobileBERT again, its weights had odd zero points, its training went NaN.

So the manifest holds the whole plan, the plan makes the same bytes again, weights are symmetric with a scale a channel,
and training for INT8 stays finite on MobileBERT's NoNorm, whose activations have no bound.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.data.batches import encode_split
from compressor.data.dataset import Split, TextDataset
from compressor.evaluation import predict_logits
from compressor.models import load_compressed
from compressor.quantize.fake import quantizable
from compressor.quantize.plan import QuantizationPlan
from compressor.quantize.qat import QAT, QATConfig
from compressor.quantize.training import off_grid
from export.build import export_artifacts
from export.source import ExportRequest
from export.tflite.flatbuffer import read, type_names, weight_uses
from tests.compressor.tiny_data import context, run_stage
from tests.export.tflite.samples import sample
from tests.models import LABELS, SENTENCES, keyword_split


def test_the_manifests_plan_makes_the_same_file_again(trained, tmp_path):
    request = ExportRequest(
        formats=("onnx",), precisions=("int8",), lengths=(16,), parity_texts=SENTENCES, parity_source="test", name="t",
        plan=QuantizationPlan(method="static"), calibration_texts=SENTENCES,
    )  # fmt: skip
    (first,) = export_artifacts(trained, request, tmp_path / "first").artifacts
    plan = QuantizationPlan.model_validate(first.manifest.rebuild["plan"])
    assert plan.method == "static"
    again = ExportRequest(**{**vars(request), "plan": plan})
    (second,) = export_artifacts(trained, again, tmp_path / "second").artifacts
    assert first.model_path.read_bytes() == second.model_path.read_bytes()
    assert Artifact.load(first.path).manifest.source["checkpoint"] == trained.hash


def test_weights_of_a_mobilebert_have_no_zero_points_and_a_scale_per_channel():
    converted = read(sample("mobilebert").reduced("int8") / "model.tflite")
    for use in weight_uses(converted):
        assert type_names()[use.tensor.type] == "int8"
        assert len(use.tensor.quantization.scale) == use.tensor.shape[0]
        assert not np.any(use.tensor.quantization.zeroPoint)


@pytest.mark.parametrize("ranges", ["learned", "observed"])
def test_training_for_int8_stays_finite_without_norms(checkpoint_of, tmp_path, ranges):
    base = Checkpoint.open(Path(shutil.copytree(checkpoint_of("mobilebert").path, tmp_path / "base")))
    model = load_compressed(base.path)
    texts = {name: keyword_split(count, seed=count).texts for name, count in {"train": 48, "rest": 31}.items()}
    with torch.no_grad():
        # NoNorm scales nothing down: what one layer makes large stays large.
        model.get_submodule("mobilebert.embeddings.LayerNorm").weight.mul_(50.0)
        model.classifier.bias.sub_(torch.from_numpy(_logits(model, base, texts["train"]).mean(axis=0)))
    model.save_pretrained(base.path)
    # Its own answers are the labels: a random model is at chance on any others.
    splits = {
        name: Split(some, tuple(int(row.argmax()) for row in _logits(model, base, some)))
        for name, some in texts.items()
    }
    data = TextDataset(LABELS, splits["train"], splits["rest"], splits["rest"])
    stage = QAT(QATConfig.model_validate({"ranges": ranges, "epochs": 1, "batch_size": 16, "lr": 1e-3}))
    facts = run_stage(stage, context(tmp_path, base, data=data), tmp_path / "out")
    assert np.isfinite(facts["curves"]["total"]).all()
    made = quantizable(load_compressed(tmp_path / "out")).values()
    assert max(off_grid(module.weight.detach(), 8) for module in made) < 0.01


def _logits(model, base, texts):
    return predict_logits(model, encode_split(base, Split(texts, (0,) * len(texts)), max_tokens=32))
