"""Half arithmetic is emulated faithfully, and islands follow what was measured."""

import json

import numpy as np
import onnx
import pytest
import torch

from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan
from export.onnx import files
from export.onnx.backend import RANGES_FILE, OnnxBackend
from export.onnx.half import to_half
from export.onnx.half_audit import audited_half, emulated
from export.onnx.ranges import session_of
from tests.export.onnx.helpers import Source, add_weight, io_for, text_model
from tests.models import tiny_checkpoint


def run(model, **feed):

    return session_of(model, optimize=False).run(None, feed)[0]


def test_emulation_rounds_and_overflows_as_half_does():
    model = text_model("m (float[N,2] x, float[2,2] w) => (float[N,2] y) { y = MatMul(x, w) }")
    weight = np.array([[1.0, 1000.0], [1.0, 1000.0]], np.float32)
    add_weight(model, "w", weight)
    to_half(model)
    x = np.array([[1.0, 1e-4], [30.0, 40.0]], np.float32)
    found = run(emulated(model), x=x)
    with np.errstate(over="ignore"):
        half = (x.astype(np.float16).astype(np.float32) @ weight).astype(np.float16)
    np.testing.assert_array_equal(found, half.astype(np.float32))
    assert np.isinf(found[1, 1]) and found[0, 0] == 1.0  # 1.0001 is no half number


@pytest.fixture(scope="module")
def sound(checkpoint_of, tmp_path_factory):
    source, folder = Source(checkpoint_of("bert")), tmp_path_factory.mktemp("fp32")
    OnnxBackend().convert(source.model, source.spec, folder)
    return source, folder


def test_a_sound_model_is_halved_as_by_rule(sound, tmp_path):
    source, folder = sound
    OnnxBackend().reduce(folder, tmp_path, "fp16", QuantizationPlan(), source.calibration())
    found = OnnxBackend().inspect(tmp_path / "model.onnx")
    assert found.precision == "fp16" and set(found.gemm_types) == {"fp16"}
    audit = json.loads((tmp_path / RANGES_FILE).read_text())["half_audit"]
    assert audit["widened"] == [] and 0 < audit["emulated_error"] < 0.02
    assert audit["longest_tokens"] == 48 and audit["sentences"] > 5
    peaks = [peak["magnitude"] for peak in audit["peaks"]]
    assert peaks == sorted(peaks, reverse=True) and 0 < peaks[0] < 16_000
    note = str(OnnxBackend().finish(tmp_path, source.spec, "fp16")["half_audit"])
    assert "0 nodes stay FP32" in note


def test_a_weight_beyond_half_joins_an_island(sound, tmp_path):
    source, folder = sound
    model = onnx.load(folder / "model.onnx")
    weight = next(item for item in model.graph.initializer if item.name == "model.bert.pooler.dense.weight")
    array = onnx.numpy_helper.to_array(weight).copy()
    array[0, 0] = 1e5
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    onnx.save(model, tmp_path / "model.onnx")
    half = files.load(tmp_path / "model.onnx")
    audit = audited_half(half, source.calibration())
    assert {peak.module for peak in audit.widened} == {"bert.pooler.dense"}
    assert audit.widened[0].magnitude == pytest.approx(1e5)


def test_what_no_island_saves_is_refused(tmp_path, monkeypatch):
    source = Source(tiny_checkpoint("bert", tmp_path / "model"))
    with torch.no_grad():
        source.model.bert.encoder.layer[0].intermediate.dense.weight.mul_(8)
        source.model.bert.encoder.layer[0].output.dense.weight.mul_(1.5e5)
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    monkeypatch.setattr("export.onnx.half_audit.MARGIN", 0.0)  # the measured ranges widen nothing
    output = tmp_path / "half"
    output.mkdir()
    with pytest.raises(StageError, match=r"NaN or infinite logits on real text; the largest magnitude"):
        OnnxBackend().reduce(tmp_path, output, "fp16", QuantizationPlan(), source.calibration())
    assert not any(output.iterdir())


def test_the_audited_file_runs_as_it_should(sound, tmp_path):
    source, folder = sound
    OnnxBackend().reduce(folder, tmp_path, "fp16", QuantizationPlan(), source.calibration())
    assert source.relative_error(OnnxBackend().open(tmp_path, io_for(source.spec), threads=1)) <= 1e-2
