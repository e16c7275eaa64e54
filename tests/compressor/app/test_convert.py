"""How ``convert`` decides lengths and what it takes from a device's profile."""

import json
import shutil
from pathlib import Path

import pytest

from compressor.app import convert as conversion
from compressor.app.convert import convert
from compressor.core.device import DeviceProfile
from compressor.core.errors import ModelError, UsageError
from compressor.quantize.plan import QuantizationPlan
from compressor.text import SentenceEncoder
from devices.profiles import DeviceAddress
from export.buckets import buckets_for
from export.onnx.predictor import OnnxPredictor


@pytest.fixture
def sentences(tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_text("".join(f"{text}\n" for text in ("where is my order", "refund", "cancel the order now") * 5))
    return file


def test_the_users_sentences_decide_the_lengths(checkpoint_of, sentences, tmp_path):
    checkpoint = checkpoint_of("bert")
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=64)
    lengths = [len(item) for item in encoder.encode(sentences.read_text().splitlines())]
    artifact = convert(checkpoint.path, to="tensorrt", output=tmp_path / "o", sentences=sentences, threads=1)
    assert artifact.io.lengths == buckets_for(lengths, max_tokens=64)
    assert artifact.io.lengths[-1] < 16


def test_a_damaged_plan_is_told_with_its_place(checkpoint_of, tmp_path):
    folder = Path(shutil.copytree(checkpoint_of("bert").path, tmp_path / "planned"))
    (folder / "quantization.json").write_text('{"max_drop_points": -1.0}')
    with pytest.raises(ModelError, match=r"quantization\.json holds no readable plan: max_drop_points: found -1\.0"):
        convert(folder, to="onnx", precision="int8", output=tmp_path / "o", threads=1)
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("limit", [-1.0, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused_before_any_work(checkpoint_of, sentences, tmp_path, limit):
    with pytest.raises(
        UsageError, match=r"--max-drop-points is \S+; expected a number of percentage points, 0 or more"
    ):
        convert(
            checkpoint_of("bert").path, to="onnx", output=tmp_path / "o", eval_data=sentences, max_drop_points=limit
        )
    assert not (tmp_path / "o").exists()


def test_int8_for_a_board_with_tensorrt_8(checkpoint_of, sentences, tmp_path, monkeypatch):
    board = DeviceProfile(
        name="board",
        title="A board",
        kind="jetson",
        architecture="aarch64",
        formats=("tensorrt",),
        tensorrt="8.5 - 10.3",
    )
    monkeypatch.setattr(conversion, "parse_device", lambda text: DeviceAddress(profile=board, transport="unreached"))
    monkeypatch.setattr("export.tensorrt.engines.find_spec", lambda name: None)
    artifact = convert(
        checkpoint_of("bert").path, to="tensorrt", precision="int8", output=tmp_path / "o", profiles="1:8:16,17:24:32",
        calibrate=sentences, device="board", threads=1,
    )  # fmt: skip
    assert (artifact.manifest.precision, artifact.manifest.method) == ("int8", "static")
    assert artifact.manifest.compute_precision == "int8"
    assert {"model.onnx", "model.trt8.onnx", "build_engine.py", "engine_check.py"} <= set(artifact.manifest.files)
    settings = json.loads((artifact.path / "build.json").read_text())
    assert settings["profiles"] == [[1, 8, 16], [17, 24, 32]]
    assert [graph["oldest"] for graph in settings["graphs"]] == [[10, 0], [8, 0]]
    assert [signature.length for signature in artifact.io.signatures] == [16, 32]


def test_wishes_of_the_checkpoints_plan_stay_unless_the_call_has_its_own(checkpoint_of, tmp_path):
    folder = Path(shutil.copytree(checkpoint_of("bert").path, tmp_path / "planned"))
    plan = QuantizationPlan(reduced_range=True, method="static", ranges={})
    (folder / "quantization.json").write_text(plan.model_dump_json())
    artifact = convert(folder, to="onnx", precision="int8", output=tmp_path / "o", method="dynamic", threads=1)
    found = OnnxPredictor(artifact.model_path, threads=1).metadata
    assert found["int8_weight_levels"] == "63"
    board = convert(
        folder, to="onnx", precision="int8", output=tmp_path / "p", method="dynamic", device="raspberry-pi-5", threads=1
    )
    assert OnnxPredictor(board.model_path, threads=1).metadata["int8_weight_levels"] == "127"
