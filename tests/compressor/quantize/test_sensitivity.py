from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError
from compressor.data.batches import EncodedSplit, encode_split
from compressor.data.dataset import Split, TextDataset
from compressor.evaluation import predict_logits
from compressor.models import load_compressed
from compressor.quantize import sensitivity
from compressor.quantize.fake import observed, quantizable, quantized, round_activation, round_rows, round_weight
from compressor.quantize.mixed import mixed_plan, refinements, simulated_accuracy
from compressor.quantize.plan import ActivationRange, QuantizationPlan, Sensitivity
from compressor.quantize.sensitivity import analyse, analyse_cached, plot
from compressor.quantize.stage import Quantize, QuantizeConfig
from tests.compressor.tiny_data import context, run_stage
from tests.models import LABELS, keyword_split, tiny_task_checkpoint

BAD = "classifier"


def poisoned(checkpoint: Checkpoint) -> nn.Module:
    """A model whose head has a weight in each row so large that eight bits leave nothing of the others."""
    model = load_compressed(checkpoint.path)
    weight = model.get_submodule(BAD).weight
    with torch.no_grad():
        weight[:, 0] = 400.0  # type: ignore[index]
        feeding = model.get_submodule("bert.pooler.dense")
        # The channel it meets is silent, so the model answers almost as before.
        feeding.weight[0], feeding.bias[0] = 0.0, 0.0  # type: ignore[index, operator]
    return model


def encoded(checkpoint: Checkpoint) -> EncodedSplit:
    return encode_split(checkpoint, keyword_split(60, seed=2), max_tokens=32)


def test_values_land_on_the_grid_and_zero_is_exact() -> None:
    weight = torch.tensor([[1.0, -0.3, 0.02], [0.0, 0.0, 0.0]])
    rounded = round_weight(weight, 8)
    assert torch.equal(round_weight(rounded, 8), rounded)
    assert (rounded - weight).abs().max() <= 0.5 / 127
    assert round_activation(torch.tensor([0.0]), torch.tensor(0.5), torch.tensor(2.0)).item() == 0.0
    rows = torch.tensor([[1000.0, 1.0], [0.01, 0.02]])
    assert (round_rows(rows)[1] - rows[1]).abs().max() < 1e-4


def test_the_model_is_as_before_afterwards(trained: Checkpoint) -> None:
    model, data = load_compressed(trained.path), encoded(trained)
    before = predict_logits(model, data)
    with quantized(model, dict.fromkeys(quantizable(model), 4)):
        assert np.abs(predict_logits(model, data) - before).max() > 0
    np.testing.assert_array_equal(predict_logits(model, data), before)


def test_ranges_are_the_extremes_seen(trained: Checkpoint) -> None:
    model = load_compressed(trained.path)
    linear = model.get_submodule("classifier")
    with observed(model) as ranges:
        linear(torch.full((1, 32), -2.0))
        linear(torch.full((1, 32), 3.0))
    assert ranges["classifier"].input == (-2.0, 3.0)
    assert set(ranges) == {"classifier"}


@pytest.mark.parametrize("method", ["dynamic", "static"])
def test_the_poisoned_module_comes_first(trained: Checkpoint, method: str) -> None:
    model = poisoned(trained)
    table = analyse(model, encoded(trained), method=method)  # type: ignore[arg-type]
    assert table[0].module == BAD
    assert table[0].error > 3 * table[1].error
    assert {item.module for item in table} == set(quantizable(model))
    assert [item.error for item in table] == sorted((item.error for item in table), reverse=True)


def test_a_second_analysis_is_read_from_the_cache(
    trained: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = load_compressed(trained.path), encoded(trained)
    first = analyse_cached(model, data, tmp_path, trained.hash)
    monkeypatch.setattr(sensitivity, "analyse", lambda *_, **__: pytest.fail("analysed again"))
    assert analyse_cached(model, data, tmp_path, trained.hash) == first
    with pytest.raises(pytest.fail.Exception):
        analyse_cached(model, data, tmp_path, "another checkpoint")
    monkeypatch.setattr(sensitivity, "source_hash", lambda _: "a later version of this code")
    with pytest.raises(pytest.fail.Exception):
        analyse_cached(model, data, tmp_path, trained.hash)


def test_mixed_precision_gives_up_the_poisoned_module_and_no_other(trained: Checkpoint) -> None:
    model, data = poisoned(trained), encoded(trained)
    whole = QuantizationPlan.uniform("int4")
    table = analyse(model, data, bits=4)
    assert simulated_accuracy(model, data, whole) < 0.9
    plan = mixed_plan(model, data, whole, table, limit_points=2.0)
    assert plan.precision_of(BAD) == "fp16"
    assert plan.precision_of("bert.encoder.layer.0.output.dense") == "int4"
    assert simulated_accuracy(model, data, plan) >= 0.95
    assert plan.sensitivities == table


def test_a_table_that_files_keep_is_not_rounded_in_the_simulation(trained: Checkpoint) -> None:
    model, data = load_compressed(trained.path), encoded(trained)
    with torch.no_grad():  # four bits leave nothing of a word beside such a number, which its position takes away again
        model.get_submodule("bert.embeddings.word_embeddings").weight[:, 0] += 60.0  # type: ignore[index, operator]
        model.get_submodule("bert.embeddings.position_embeddings").weight[:, 0] -= 60.0  # type: ignore[index, operator]
    whole = simulated_accuracy(model, data, QuantizationPlan.uniform("fp32"))
    only = {"policy": [{"pattern": "*word_embeddings", "precision": "int4"}]}
    rounded = QuantizationPlan.model_validate({"precision": "int4", **only})
    kept = QuantizationPlan.model_validate({"precision": "int4", **only, "quantize_embeddings": False})
    assert simulated_accuracy(model, data, rounded) < whole
    assert simulated_accuracy(model, data, kept) == whole


def test_refinements_keep_more_and_more_up_to_half() -> None:
    table = tuple(
        Sensitivity(module=f"m{number}", loss=0, error=1 / (number + 1), parameters=1) for number in range(10)
    )
    kept = [
        [rule.pattern for rule in plan.policy if rule.precision == "fp16"]
        for plan in refinements(QuantizationPlan(), table)
    ]
    assert kept == [["m0"], ["m0", "m1"], ["m0", "m1", "m2", "m3"]]


def test_the_stage_writes_table_and_plot_and_changes_no_weight(trained: Checkpoint, tmp_path: Path) -> None:
    data = TextDataset(LABELS, *(keyword_split(40, seed=seed) for seed in (3, 4, 5)))
    settings = {"mixed": True, "max_drop_points": 1.0}
    stage = Quantize(QuantizeConfig.model_validate(settings))
    run_stage(stage, context(tmp_path, trained, data=data), tmp_path / "out")
    plan = QuantizationPlan.model_validate(Checkpoint.open(tmp_path / "out").quantization)
    assert {item.module for item in plan.sensitivities} == set(quantizable(load_compressed(trained.path)))
    assert (tmp_path / "out" / "sensitivity.svg").read_text().startswith("<?xml")
    assert plan.precision_of("bert.encoder.layer.0.output.dense") == "int8"


@pytest.mark.parametrize("settings", [{"sensitivity": True}, {"mixed": True, "max_drop_points": 1.0}])
def test_a_task_without_one_label_a_text_is_refused_before_any_work(tmp_path: Path, settings: dict[str, Any]) -> None:
    checkpoint = tiny_task_checkpoint("regression", tmp_path / "source")
    scored = Split(("the card", "my order"), (0.5, 1.5))
    where = context(tmp_path, checkpoint, data=TextDataset(("score",), scored, scored, scored, task="regression"))
    with pytest.raises(RecipeError, match="found the task regression, expected text-classification"):
        Quantize(QuantizeConfig.model_validate(settings)).requires(where)
    Quantize(QuantizeConfig()).requires(where)


def test_mixed_without_a_limit_is_refused() -> None:
    with pytest.raises(ValidationError, match="max_drop_points"):
        QuantizeConfig(mixed=True)


def test_a_plot_can_be_drawn(tmp_path: Path) -> None:
    plot((Sensitivity(module="m", loss=0, error=0.1, parameters=3),), tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_a_plan_with_ranges_reads_back() -> None:
    plan = QuantizationPlan(method="static", ranges={"a.b": ActivationRange(input=(-1.0, 2.0), output=(0.0, 3.0))})
    assert QuantizationPlan.model_validate_json(plan.model_dump_json()) == plan
