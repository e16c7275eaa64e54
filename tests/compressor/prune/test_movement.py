from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, RecipeError
from compressor.data.dataset import TextDataset
from compressor.evaluation import evaluate_checkpoint
from compressor.models import load_compressed
from compressor.prune.masks import fits
from compressor.prune.movement import LearntMasks, MovementSettings, TaughtClassification
from compressor.prune.sparsify import Sparsify, SparsifyConfig, encoder_matrices
from tests.compressor.tiny_data import context, run_stage, tiny_dataset
from tests.models import FAMILIES, LABELS, keyword_split
from tests.shrunk import logits_of

TRAIN = {"epochs": 4, "lr": 2e-3, "batch_size": 8, "mask_steps": 2}


def settings(**more) -> SparsifyConfig:
    train = {**TRAIN, **more.pop("train", {})}
    return SparsifyConfig.model_validate({"method": "movement", "train": train, **more})


def matrices(folder):
    return encoder_matrices(load_compressed(Checkpoint.open(folder)))


def test_scores_get_the_weights_movement_and_masked_weights_stay_out_of_the_product():
    torch.manual_seed(0)
    linear = nn.Linear(4, 3, bias=False)
    weight = linear.weight.detach().clone()
    learnt = LearntMasks(
        {"a": linear}, pattern="unstructured", ratio=0.5, granularity="global", settings=MovementSettings()
    )
    mask = linear.parametrizations.weight[0]
    mask.mask[0] = False
    inputs = torch.randn(5, 4)
    outputs = linear(inputs)
    assert torch.equal(outputs[:, 0], torch.zeros(5))
    outputs.square().sum().backward()
    gradient = 2 * outputs.detach().T @ inputs
    torch.testing.assert_close(mask.scores.grad, gradient * weight)
    torch.testing.assert_close(linear.parametrizations.weight.original.grad, gradient * mask.mask)
    mask.scores.data.copy_(torch.arange(12.0).reshape(3, 4))
    kept = learnt.settle()["a"]
    assert kept.flatten().tolist() == [False] * 6 + [True] * 6
    assert type(linear) is nn.Linear and torch.equal(linear.weight, weight * kept)


def test_the_share_grows_by_a_cubic_curve_between_its_two_ends():
    plan = MovementSettings(prune_from=0.25, prune_until=0.75)
    assert [plan.share_at(step, 100) for step in (0, 25, 75, 99)] == [0, 0, 1, 1]
    assert plan.share_at(50, 100) == pytest.approx(1 - 0.5**3)
    with pytest.raises(ValidationError, match="prune_from"):
        MovementSettings(prune_from=0.8, prune_until=0.5)


def test_the_teachers_answers_come_to_the_device_that_trains():
    class OnDevice(nn.Module):
        def forward(self, **_: object) -> SimpleNamespace:
            return SimpleNamespace(logits=torch.zeros(2, 3, device="meta"))

    objective = TaughtClassification(OnDevice(), np.ones((4, 3), np.float32), weight=1.0, temperature=2.0)
    losses = objective({}, torch.zeros(2, dtype=torch.long, device="meta"), [3, 1])
    assert {name: loss.device.type for name, loss in losses.items()} == {"labels": "meta", "logits": "meta"}


def test_what_training_moves_away_from_zero_stays_where_magnitude_alone_breaks_the_task(trained, tmp_path):
    data = TextDataset(LABELS, *(keyword_split(count, seed=count) for count in (96, 60, 61)))
    where = context(tmp_path / "a", trained, checkpoints={"01-finetune": trained}, data=data)
    asked = settings(ratio=0.95, train={"teacher": "01-finetune", "epochs": 8})
    facts = run_stage(Sparsify(asked), where, tmp_path / "learnt")
    run_stage(Sparsify(SparsifyConfig(ratio=0.95)), context(tmp_path / "b", trained), tmp_path / "ranked")
    learnt, ranked = (Checkpoint.open(tmp_path / name) for name in ("learnt", "ranked"))
    score = {it: evaluate_checkpoint(it, where.data.test, threads=1).value for it in (learnt, ranked)}
    assert score[learnt] == facts["evaluation"]["after"]["test"]["value"] > 0.9
    assert score[ranked] < 0.5
    assert facts["sparsity"]["share"] == pytest.approx(0.95, abs=1e-4)
    assert facts["bytes"]["file_after"] == pytest.approx(facts["bytes"]["file_before"], rel=1e-3)
    assert facts["bytes"]["compressed_after"] < 0.9 * facts["bytes"]["compressed_before"]
    assert facts["faster"].startswith("nothing")
    assert set(facts["curves"]) == {"labels", "logits", "total"}
    entry = learnt.compression["history"][-1]
    assert entry["sparsity"] == facts["sparsity"] and "curves" not in entry
    # Learnt means chosen by training: many weights that were large are gone.
    before, after = encoder_matrices(load_compressed(trained)), matrices(tmp_path / "learnt")
    gone = torch.cat([before[name].weight[it.weight == 0].detach().abs().flatten() for name, it in after.items()])
    large = torch.cat([module.weight.detach().abs().flatten() for module in before.values()]).median()
    assert float((gone > large).float().mean()) > 0.2


@pytest.mark.parametrize("pattern", ["2:4", "4x1"])
def test_patterns_are_learnt_too(trained, pattern, tmp_path):
    ratio = None if ":" in pattern else 0.5
    run_stage(Sparsify(settings(pattern=pattern, ratio=ratio)), context(tmp_path, trained), tmp_path / "out")
    for module in matrices(tmp_path / "out").values():
        assert fits(module.weight.shape, pattern)
        units = module.weight.reshape(-1, 4) if ":" in pattern else module.weight.reshape(-1, 4, module.in_features)
        zeros = (units == 0).sum(dim=1)
        if ":" in pattern:
            assert bool((zeros >= 2).all())
        else:
            assert set(zeros.flatten().tolist()) <= {0, 4}


@pytest.mark.parametrize("family", ["albert", "mobilebert", "deberta-v2"])
def test_families_of_another_build_learn_masks(family, checkpoint_of, tmp_path):
    assert family in FAMILIES
    source = checkpoint_of(family)
    asked = settings(ratio=0.5, by="matrix", train={"epochs": 0.25})
    facts = run_stage(Sparsify(asked), context(tmp_path, source), tmp_path / "out")
    assert facts["sparsity"]["share"] == pytest.approx(0.5, abs=1e-3)
    saved = Checkpoint.open(tmp_path / "out")
    assert torch.isfinite(logits_of(load_compressed(saved), saved)).all()


def test_a_killed_run_learns_the_same_masks(trained, tmp_path):
    asked = settings(ratio=0.5, train={"epochs": 1, "checkpoint_steps": 5, "mask_steps": 3})
    run_stage(Sparsify(asked), context(tmp_path / "whole", trained), tmp_path / "whole" / "out")

    def stop(done: int, total: int, note: str = "") -> None:
        if done == 7:
            raise KeyboardInterrupt

    broken = context(tmp_path / "broken", trained, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        run_stage(Sparsify(asked), broken, tmp_path / "broken" / "first")
    run_stage(Sparsify(asked), context(tmp_path / "broken", trained), tmp_path / "broken" / "out")
    for name, module in matrices(tmp_path / "whole" / "out").items():
        assert torch.equal(module.weight, matrices(tmp_path / "broken" / "out")[name].weight)


def test_what_cannot_be_trained_is_refused_before_any_work(trained, tmp_path):
    stage = Sparsify(settings(ratio=0.5, train={"teacher": "01-finetun"}))
    with pytest.raises(RecipeError, match="names no earlier stage") as error:
        stage.check(trained, ("01-finetune",))
    assert "01-finetune" in str(error.value.remedy)
    with pytest.raises(RecipeError, match="names no earlier stage"):
        stage.requires(context(tmp_path, trained))
    other = tiny_dataset()
    other = type(other)(("a", "b", "c"), other.train, other.validation, other.test)
    with pytest.raises(ModelError, match="labels"):
        Sparsify(settings(ratio=0.5)).requires(context(tmp_path, trained, data=other))
    for bad in ({"activations": True, "ratio": 0.5}, {"ratio": None}):
        with pytest.raises(ValidationError):
            settings(**bad)
    with pytest.raises(ValidationError, match="belongs to"):
        SparsifyConfig(ratio=0.5, train=MovementSettings())
