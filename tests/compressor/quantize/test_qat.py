from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError, StageError
from compressor.core.task import Task
from compressor.data.dataset import TextDataset
from compressor.models import load_compressed
from compressor.quantize.fake import quantizable, quantized, round_weight
from compressor.quantize.plan import QuantizationPlan
from compressor.quantize.qat import QAT, QATConfig
from compressor.quantize.training import DynamicGrid, LearnedGrid, ObservedGrid, Quantizers, input_groups, off_grid
from compressor.share.factorize import Factorize, FactorizeConfig
from tests.compressor.tiny_data import context, run_stage
from tests.models import LABELS, keyword_split, tiny_task_checkpoint

DATA = TextDataset(LABELS, keyword_split(160, seed=3), keyword_split(60, seed=4), keyword_split(60, seed=5))
TABLE = "bert.embeddings.word_embeddings"


def test_the_gradient_passes_inside_the_range_and_stops_outside() -> None:
    grid = ObservedGrid((-1.0, 1.0)).eval()
    values = torch.tensor([0.3, 5.0, -7.0], requires_grad=True)
    grid(values).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1.0, 0.0, 0.0]


def test_the_learned_step_gets_the_gradient_of_lsq() -> None:
    grid = LearnedGrid((0.0, 2.55))
    step = grid.scale.detach().clone()
    inside, outside = 0.1234, 9.0
    grid(torch.tensor([inside, outside])).sum().backward()
    gentle = (2 * 255) ** -0.5
    rounding = round(inside / float(step)) - inside / float(step)
    assert grid.scale.grad == pytest.approx(gentle * (rounding + 255), rel=1e-4)


@pytest.mark.parametrize("grid", [DynamicGrid(), ObservedGrid((0.0, 0.0)), LearnedGrid((0.0, 0.0))])
def test_constant_activations_and_dead_rows_give_no_nan(grid: nn.Module) -> None:
    values = torch.zeros(2, 4, requires_grad=True)
    grid(values).sum().backward()
    assert torch.isfinite(grid(values)).all()
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()
    assert torch.equal(round_weight(torch.zeros(3, 3), 8), torch.zeros(3, 3))


def test_query_key_and_value_share_the_grid_of_their_input(trained: Checkpoint) -> None:
    model = load_compressed(trained.path)
    groups = input_groups(model, {"input_ids": torch.tensor([[2, 5, 3]])})
    base = "bert.encoder.layer.0"
    attention = {groups[f"{base}.attention.self.{name}"] for name in ("query", "key", "value")}
    assert attention == {f"{base}.attention.self.query"}
    assert groups[f"{base}.intermediate.dense"] == f"{base}.intermediate.dense"


@pytest.mark.parametrize(
    ("method", "ranges", "precision"),
    [("static", "learned", "int8"), ("static", "observed", "int8"), ("dynamic", None, "int4")],
)
def test_weights_end_on_the_exporters_grid_and_the_task_is_kept(
    trained: Checkpoint, tmp_path: Path, method: str, ranges: str | None, precision: str
) -> None:
    settings = {"method": method, "precision": precision, "epochs": 1, "batch_size": 16}
    settings |= {"ranges": ranges} if ranges else {}
    stage = QAT(QATConfig.model_validate(settings))
    facts = run_stage(stage, context(tmp_path, trained, data=DATA), tmp_path / "out")
    evaluation = facts["evaluation"]
    assert evaluation["quantized"]["test"]["value"] >= evaluation["float"]["test"]["value"] - 0.05
    made = Checkpoint.open(tmp_path / "out")
    plan = QuantizationPlan.model_validate(made.quantization)
    model = load_compressed(made.path)
    modules = quantizable(model)
    bits = 4 if precision == "int4" else 8
    assert max(off_grid(module.weight.detach(), bits) for module in modules.values()) < 0.01  # type: ignore[arg-type]
    linear = {path for path, module in modules.items() if isinstance(module, nn.Linear)}
    assert set(plan.ranges) == (linear if method == "static" else set())
    # What training saw is what the plan's ranges give: the file computes on the same grid.
    inputs = {"input_ids": torch.tensor([[2, 5, 9, 3]])}
    with quantized(model, dict.fromkeys(modules, bits), plan.ranges or None) as rounded, torch.no_grad():
        assert torch.isfinite(rounded(**inputs).logits).all()


def test_a_factorised_table_is_trained_on_the_grid_that_is_saved(trained: Checkpoint, tmp_path: Path) -> None:
    run_stage(Factorize(FactorizeConfig(rank=8)), context(tmp_path / "thin", trained, data=DATA), tmp_path / "source")
    model = load_compressed(tmp_path / "source")
    inputs = {"input_ids": torch.tensor([[2, 5, 9, 3]])}
    with torch.no_grad():
        unrounded = model(**inputs).logits
        with Quantizers(model, {TABLE: 4}, "dynamic", {}, {}).attached(model):
            seen_in_training = model(**inputs).logits
        saved = model(**inputs).logits
    assert (seen_in_training - unrounded).abs().max() > 1e-3
    torch.testing.assert_close(saved, seen_in_training, atol=1e-6, rtol=1e-6)
    stage = QAT(QATConfig(epochs=0.2))
    run_stage(stage, context(tmp_path, Checkpoint.open(tmp_path / "source"), data=DATA), tmp_path / "out")
    assert off_grid(load_compressed(tmp_path / "out").get_submodule(TABLE).weight.detach(), 8) < 0.01  # type: ignore[union-attr, operator, arg-type]


def test_seven_bits_are_trained_where_they_are_asked_for(trained: Checkpoint, tmp_path: Path) -> None:
    stage = QAT(QATConfig(epochs=0.2, reduced_range=True))
    run_stage(stage, context(tmp_path, trained, data=DATA), tmp_path / "out")
    model = load_compressed(tmp_path / "out")
    for module in quantizable(model).values():
        weight = module.weight.detach()  # type: ignore[union-attr, operator]
        assert off_grid(weight, 7 if isinstance(module, nn.Linear) else 8) < 0.01  # type: ignore[arg-type]
    assert QuantizationPlan.model_validate(Checkpoint.open(tmp_path / "out").quantization).reduced_range


def test_weights_off_their_grid_are_noticed(trained: Checkpoint, tmp_path: Path) -> None:
    stage, where = QAT(QATConfig(epochs=0.2)), context(tmp_path, trained, data=DATA)
    run_stage(stage, where, tmp_path / "out")
    model = load_compressed(tmp_path / "out")
    with torch.no_grad():
        model.get_submodule("classifier").weight.mul_(torch.linspace(0.5, 1.1, 32))  # type: ignore[operator]
    model.save_pretrained(tmp_path / "out")  # type: ignore[operator]
    with pytest.raises(StageError, match=r"classifier is .* steps off its 8-bit grid"):
        stage.ensures(where, tmp_path / "out")


def test_an_unknown_teacher_is_refused(trained: Checkpoint, tmp_path: Path) -> None:
    stage = QAT(QATConfig(teacher="01-finetun"))
    with pytest.raises(RecipeError, match="names no earlier stage"):
        stage.check(trained, ("01-finetune",))


@pytest.mark.parametrize("task", ["multi-label-classification", "regression"])
def test_a_task_of_several_labels_or_none_is_refused_before_any_work(tmp_path: Path, task: Task) -> None:
    checkpoint = tiny_task_checkpoint(task, tmp_path / "source")
    where = context(tmp_path, checkpoint, data=replace(DATA, label_names=checkpoint.labels, task=task))
    with pytest.raises(RecipeError, match=f"the stage qat does not train {task}"):
        QAT(QATConfig()).requires(where)


@pytest.mark.parametrize("idle", [{"ranges": "learned"}, {"observe_sentences": 8}])
def test_settings_of_fixed_ranges_are_refused_where_ranges_are_found_at_run_time(idle: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=f"'{next(iter(idle))}' is of fixed ranges"):
        QATConfig.model_validate({"method": "dynamic", **idle})
    QATConfig.model_validate(idle)
