from pathlib import Path

import pytest
from pydantic import ValidationError

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import StageError, UsageError
from compressor.quantize.plan import QuantizationPlan
from compressor.quantize.stage import Quantize, QuantizeConfig
from tests.compressor.tiny_data import context, run_stage
from tests.models import tiny_checkpoint


def test_the_plan_is_written_beside_unchanged_weights(tmp_path: Path) -> None:
    base = tiny_checkpoint("bert", tmp_path / "base")
    settings = {"max_drop_points": 0.5, "policy": [{"pattern": "classifier", "precision": "fp32"}]}
    run_stage(Quantize(QuantizeConfig.model_validate(settings)), context(tmp_path, base), tmp_path / "out")
    saved = Checkpoint.open(tmp_path / "out")
    plan = QuantizationPlan.model_validate(saved.quantization)
    assert (plan.precision, plan.method, plan.max_drop_points) == ("int8", "dynamic", 0.5)
    assert plan.precision_of("bert.encoder.layer.0.attention.self.query") == "int8"
    assert plan.precision_of("classifier") == "fp32"
    assert (saved.path / "model.safetensors").read_bytes() == (base.path / "model.safetensors").read_bytes()
    assert base.quantization is None


def test_fp16_and_a_second_plan_replaces_the_first(tmp_path: Path) -> None:
    base = tiny_checkpoint("bert", tmp_path / "base")
    run_stage(Quantize(QuantizeConfig()), context(tmp_path, base), tmp_path / "a")
    first = Checkpoint.open(tmp_path / "a")
    run_stage(Quantize(QuantizeConfig(precision="fp16")), context(tmp_path, first), tmp_path / "b")
    assert QuantizationPlan.model_validate(Checkpoint.open(tmp_path / "b").quantization).precision_of("x") == "fp16"
    assert QuantizationPlan.model_validate(Checkpoint(tmp_path / "a").quantization).precision == "int8"


def test_smoothing_and_rounding_change_weights_and_say_what_they_kept(tmp_path: Path) -> None:
    base = tiny_checkpoint("bert", tmp_path / "base")
    config = QuantizeConfig(smooth=0.5, rounding="adaptive", reduced_range=False, calibration_sentences=16)
    run_stage(Quantize(config), context(tmp_path, base), tmp_path / "out")
    plan = QuantizationPlan.model_validate(Checkpoint.open(tmp_path / "out").quantization)
    assert plan.decisions["weight_levels"] == 127
    assert [pair["consumer"] for pair in plan.decisions["smooth"]] == [
        f"bert.encoder.layer.{layer}.attention.output.dense" for layer in (0, 1)
    ]
    assert len(plan.decisions["rounding"]) == 14 and any(item["kept"] for item in plan.decisions["rounding"])
    weights = [folder / "model.safetensors" for folder in (base.path, tmp_path / "out")]
    assert weights[0].read_bytes() != weights[1].read_bytes()
    assert (tmp_path / "out" / "tokenizer.json").is_file()


@pytest.mark.parametrize(("asked", "levels"), [(None, 127), (True, 63)])
def test_rounding_has_eight_bits_unless_seven_are_asked_for(tmp_path: Path, asked: bool | None, levels: int) -> None:
    """Whatever CPU rounds: TFLite, TensorRT and NPUs hold eight."""
    base = tiny_checkpoint("bert", tmp_path / "base")
    config = QuantizeConfig(rounding="adaptive", reduced_range=asked, calibration_sentences=8)
    run_stage(Quantize(config), context(tmp_path, base), tmp_path / "out")
    plan = QuantizationPlan.model_validate(Checkpoint.open(tmp_path / "out").quantization)
    assert plan.decisions["weight_levels"] == levels


def test_rounding_is_for_int8(tmp_path: Path) -> None:
    base = tiny_checkpoint("bert", tmp_path / "base")
    stage = Quantize(QuantizeConfig(precision="int4", rounding="adaptive"))
    with pytest.raises(UsageError, match="adaptive rounding is for int8"):
        stage.requires(context(tmp_path, base))


def test_a_damaged_result_is_noticed(tmp_path: Path) -> None:
    base = tiny_checkpoint("bert", tmp_path / "base")
    stage, where = Quantize(QuantizeConfig()), context(tmp_path, base)
    run_stage(stage, where, tmp_path / "out")
    (tmp_path / "out" / "tokenizer.json").unlink()
    with pytest.raises(StageError):
        stage.ensures(where, tmp_path / "out")


def test_settings_are_strict() -> None:
    for wrong in ({"precision": "int3"}, {"methods": "dynamic"}, {"max_drop_points": -1}):
        with pytest.raises(ValidationError):
            QuantizeConfig.model_validate(wrong)
