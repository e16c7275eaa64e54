import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError, StageError
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.models import load_compressed
from compressor.train.loop import planned_batches, train, visited
from compressor.train.objective import Classification
from compressor.train.optimizer import make_optimizer, make_schedule, parameter_groups
from compressor.train.runtime import reproducible
from compressor.train.settings import TrainSettings
from tests.compressor.tiny_data import tiny_dataset
from tests.models import tiny_checkpoint

SETTINGS = TrainSettings(epochs=2, lr=1e-3, batch_size=8, checkpoint_steps=5)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint("bert", tmp_path_factory.mktemp("model")).path


def one_run(model_folder: Path, scratch: Path, settings: TrainSettings = SETTINGS, *, stop_at: int = 0, seed: int = 0):
    """Returns (curves, state dict); raises KeyboardInterrupt after ``stop_at`` steps where that is asked for."""

    def progress(done: int, total: int, note: str = "") -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    with reproducible(seed=seed, threads=1):
        model = load_compressed(model_folder)
        data = encode_split(Checkpoint.open(model_folder), tiny_dataset().train, max_tokens=32)
        curves = train(Classification(model), data, settings, seed=seed, scratch=scratch, progress=progress)
    return curves, model.state_dict()


def test_it_learns(model_folder: Path, tmp_path: Path) -> None:
    curves, _ = one_run(model_folder, tmp_path, SETTINGS.model_copy(update={"epochs": 8.0, "lr": 2e-3}))
    assert sum(curves["total"][-8:]) < 0.5 * sum(curves["total"][:8])


def test_a_run_repeats_exactly(model_folder: Path, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    first, weights = one_run(model_folder, tmp_path / "a")
    second, again = one_run(model_folder, tmp_path / "b")
    assert first == second
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert len(first["total"]) == len(first["labels"]) == 24
    assert torch.equal(state, torch.random.get_rng_state()), "the caller's random stream moved"


def test_a_killed_run_resumes_to_the_same_curve_and_weights(model_folder: Path, tmp_path: Path) -> None:
    whole, weights = one_run(model_folder, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        one_run(model_folder, tmp_path / "cut", stop_at=13)
    resumed, again = one_run(model_folder, tmp_path / "cut")
    assert resumed == whole
    assert all(torch.equal(weights[name], again[name]) for name in weights)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_with_its_name_and_keeps_the_last_good_weights(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    calls = []
    forward = Classification.forward

    def poisoned(self, inputs, labels, indices):
        calls.append(1)
        losses = forward(self, inputs, labels, indices)
        return {"labels": losses["labels"] * bad} if len(calls) == 4 else losses

    monkeypatch.setattr(Classification, "forward", poisoned)
    with pytest.raises(StageError, match=r"loss 'labels' is not finite at step 4 of 24") as error:
        one_run(model_folder, tmp_path)
    from safetensors.torch import load_file

    failed = json.loads((tmp_path / "last-good" / "batch.json").read_text())
    data = encode_split(Checkpoint.open(model_folder), tiny_dataset().train, max_tokens=32)
    assert failed["step"] == 4
    assert failed["sentences"] == dict(planned_batches(data, SETTINGS, 0))[3]
    shown = ", ".join(map(str, failed["sentences"]))
    assert f"in the batch of training sentences {shown} (counted from 0)" in error.value.message
    kept = load_file(tmp_path / "last-good" / "model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in kept.values())
    assert set(kept) == {f"model.{name}" for name in load_compressed(model_folder).state_dict()}


@pytest.mark.parametrize("fails_at", [3, 9])
def test_a_run_that_failed_can_be_run_again_as_if_it_never_had(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    """Before and after the first checkpoint; dropout makes the curve depend on the random stream."""
    whole, weights = one_run(model_folder, tmp_path / "whole")
    calls = []
    forward = Classification.forward

    def poisoned(self, inputs, labels, indices):
        calls.append(1)
        losses = forward(self, inputs, labels, indices)
        return {"labels": losses["labels"] * float("nan")} if len(calls) == fails_at else losses

    with monkeypatch.context() as patched, pytest.raises(StageError):
        patched.setattr(Classification, "forward", poisoned)
        one_run(model_folder, tmp_path / "broken")
    again, same = one_run(model_folder, tmp_path / "broken")
    assert again == whole
    assert all(torch.equal(weights[name], same[name]) for name in weights)


def test_the_callers_random_streams_are_its_own_also_after_a_resumed_run(model_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        one_run(model_folder, tmp_path, stop_at=7)
    random.seed(5)
    np.random.seed(5)
    torch.manual_seed(5)
    expected = (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist())
    one_run(model_folder, tmp_path)
    assert (random.getstate(), np.random.get_state()[1].tolist(), torch.random.get_rng_state().tolist()) == expected


def test_all_three_streams_are_seeded() -> None:
    def drawn(seed: int) -> tuple[float, float, float]:
        with reproducible(seed=seed, threads=1):
            return random.random(), float(np.random.rand()), float(torch.rand(1))

    assert drawn(1) == drawn(1)
    assert all(one != other for one, other in zip(drawn(1), drawn(2), strict=True))


def test_decay_spares_vectors_and_the_rate_rises_then_falls_to_zero(model_folder: Path) -> None:
    model = load_compressed(model_folder)
    decayed, spared = parameter_groups(model, 0.1)
    assert {p.dim() for p in spared["params"]} == {1}
    assert min(p.dim() for p in decayed["params"]) == 2
    assert spared["weight_decay"] == 0
    optimizer = make_optimizer(model, TrainSettings(lr=1.0, warmup_ratio=0.5))
    schedule = make_schedule(optimizer, TrainSettings(warmup_ratio=0.5), 4)
    rates = []
    for _ in range(5):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert rates == [0.0, 0.5, 1.0, 0.5, 0.0]


def test_a_fraction_of_an_epoch(model_folder: Path) -> None:
    data = encode_split(Checkpoint.open(model_folder), tiny_dataset().train, max_tokens=32)
    plan = list(planned_batches(data, TrainSettings(epochs=0.5, batch_size=10), seed=0))
    assert [step for step, _ in plan] == [0, 1, 2, 3, 4]
    whole = list(planned_batches(data, TrainSettings(epochs=1, batch_size=10), seed=0, start=2))
    assert whole[0] == plan[2]


def test_bf16_trains(model_folder: Path, tmp_path: Path) -> None:
    curves, weights = one_run(model_folder, tmp_path, TrainSettings(epochs=0.5, lr=1e-3, batch_size=8, bf16=True))
    assert all(tensor.dtype != torch.bfloat16 for tensor in weights.values())
    assert len(curves["total"]) == 6


def without_dropout(folder: Path, target: Path) -> Path:
    """A copy of a model folder whose models drop nothing out."""
    shutil.copytree(folder, target)
    config = json.loads((target / "config.json").read_text())
    dropouts = {name: 0.0 for name in config if name.endswith("dropout") or name.endswith("dropout_prob")}
    (target / "config.json").write_text(json.dumps(config | dropouts))
    return target


def test_a_batch_in_parts_is_the_same_step(model_folder: Path, tmp_path: Path) -> None:
    folder = without_dropout(model_folder, tmp_path / "model")
    settings = SETTINGS.model_copy(update={"batch_size": 10})  # 96 sentences: the last batch of an epoch has six
    whole, weights = one_run(folder, tmp_path / "whole", settings)
    parts, same = one_run(folder, tmp_path / "parts", settings.model_copy(update={"accumulate": 4}))
    assert parts["total"] == pytest.approx(whole["total"], abs=1e-4)
    assert all(torch.allclose(weights[name], same[name], atol=1e-4) for name in weights)


def test_what_a_short_run_visits(model_folder: Path) -> None:
    data = encode_split(Checkpoint.open(model_folder), tiny_dataset().train, max_tokens=32)
    short = TrainSettings(epochs=0.3, batch_size=10)
    planned = {index for _, batch in planned_batches(data, short, 0) for index in batch}
    assert visited(data, short, 0).tolist() == sorted(planned)
    assert len(planned) == 30
    assert visited(data, SETTINGS, 0).tolist() == list(range(96))


def test_an_empty_split_is_refused(model_folder: Path) -> None:
    nothing = encode_split(Checkpoint.open(model_folder), Split((), ()), max_tokens=32)
    with pytest.raises(DataError, match="nothing to train on"):
        next(planned_batches(nothing, SETTINGS, 0))
