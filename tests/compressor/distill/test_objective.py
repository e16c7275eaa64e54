"""Each loss trains a student; a loss that does not count at a step is not computed there."""

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from compressor.core.checkpoint import Checkpoint
from compressor.distill.config import DistillConfig
from compressor.distill.losses import LossConfig, needs_of
from compressor.distill.objective import Distillation
from compressor.distill.outputs import model_shape
from compressor.distill.students import CopiedStudent, NewStudent
from compressor.distill.teacher import TeacherOutputs
from compressor.models import load_compressed
from compressor.quantize.qat import QATConfig
from compressor.train.loop import train
from compressor.train.runtime import reproducible
from compressor.train.settings import TrainSettings
from tests.compressor.distill.test_teacher import Forwards, split

WIDE = NewStudent(
    init="new",
    family="bert",
    config={"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
)
THIN = NewStudent(
    init="new",
    family="mobilebert",
    config={
        "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32,
        "embedding_size": 16, "intra_bottleneck_size": 16, "num_feedforward_networks": 2,
    },
)  # fmt: skip
OWN_HEADS = WIDE.model_copy(update={"config": {**WIDE.config, "num_attention_heads": 2}})


def objective_of(teacher: Checkpoint, scratch: Path, losses, student=WIDE) -> Distillation:
    model, data = load_compressed(teacher.path), split(teacher)
    made = student.make(model)
    shapes = model_shape(made.config), model_shape(model.config)
    parsed = TypeAdapter(tuple[LossConfig, ...]).validate_python(losses)
    needs = needs_of(parsed, *shapes)[1]
    outputs = TeacherOutputs(
        model, data, needed=range(len(data)), states=needs.states, layers=needs.layers, width=32,
        folder=scratch, cache_mb=10,
    )  # fmt: skip
    return Distillation(made, outputs, parsed, student_shape=shapes[0], teacher_shape=shapes[1])


@pytest.mark.parametrize(
    ("loss", "student"),
    [
        ({"name": "logits"}, WIDE),
        ({"name": "logits", "kind": "mse"}, WIDE),
        ({"name": "labels"}, WIDE),
        ({"name": "hidden", "embeddings": False}, WIDE),
        ({"name": "embeddings"}, WIDE),
        ({"name": "cosine"}, WIDE),
        ({"name": "attention"}, WIDE),
        ({"name": "attention", "kind": "kl", "map": "last"}, WIDE),
        ({"name": "minilm"}, WIDE),
        ({"name": "minilmv2", "relation_heads": 8}, OWN_HEADS),
        ({"name": "mobilebert", "mean": 10.0, "feature": 10.0}, THIN),
    ],
    ids=lambda item: " ".join(map(str, item.values())) if isinstance(item, dict) else "",
)
def test_it_falls(teacher: Checkpoint, tmp_path: Path, loss: dict, student: NewStudent) -> None:
    settings = TrainSettings(epochs=8, lr=5e-3, batch_size=16)
    with reproducible(seed=0, threads=1):
        objective = objective_of(teacher, tmp_path, [loss], student)
        curve = train(objective, split(teacher), settings, seed=0, scratch=tmp_path)[loss["name"]]
    assert np.mean(curve[-6:]) < 0.8 * np.mean(curve[:6])


STAGED = [
    {"name": "hidden", "until": 0.5},
    {"name": "minilmv2", "weight": {"from": 1, "to": 0, "end": 0.5}},
    {"name": "logits", "after": 0.5},
    {"name": "labels", "weight": {"from": 0, "to": 2}},
]


def staged_run(teacher: Checkpoint, scratch: Path, stop_at: int = 0):
    def stop(done: int, total: int, note: str = "") -> None:
        if done == stop_at:
            raise KeyboardInterrupt

    settings = TrainSettings(epochs=2, lr=2e-3, batch_size=16, checkpoint_steps=2)
    with reproducible(seed=0, threads=1):
        objective = objective_of(teacher, scratch, STAGED)
        data = split(teacher)
        return objective, train(objective, data, settings, seed=0, scratch=scratch, progress=stop)


def test_a_loss_counts_where_its_schedule_says_and_resumes_to_the_same(teacher: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    objective, curves = staged_run(teacher, tmp_path / "a")
    assert set(curves) == {"hidden", "minilmv2", "logits", "labels", "total"}
    found = {name: [value is not None for value in values] for name, values in curves.items()}
    assert found == {
        "hidden": [True] * 6 + [False] * 6,
        "minilmv2": [True] * 6 + [False] * 6,
        "logits": [False] * 6 + [True] * 6,
        "labels": [False] + [True] * 11,
        "total": [True] * 12,
    }
    assert curves["total"][3] == pytest.approx(
        curves["hidden"][3] + 0.5 * curves["minilmv2"][3] + 0.5 * curves["labels"][3], rel=1e-5
    )
    assert curves["total"][9] == pytest.approx(curves["logits"][9] + 1.5 * curves["labels"][9], rel=1e-5)
    for stopped in (3, 7):
        with pytest.raises(KeyboardInterrupt):
            staged_run(teacher, tmp_path / "b", stopped)
    again, resumed = staged_run(teacher, tmp_path / "b")
    assert resumed == curves
    ours, theirs = objective.state_dict(), again.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_does_not_count_is_not_computed(teacher: Checkpoint, tmp_path: Path) -> None:
    objective = objective_of(teacher, tmp_path, STAGED)
    data = split(teacher)
    asked = []
    batch = objective._teacher.batch
    objective._teacher.batch = lambda indices, needs: asked.append(needs) or batch(indices, needs)
    computed = []
    for name, term in objective.terms.items():
        term.register_forward_pre_hook(lambda *_, name=name: computed.append(name))
    forwards = Forwards(objective._teacher._model)
    for progress, names, needs in (
        (0.0, ["hidden", "minilmv2"], ((0, 2, 4), (3,))),
        (0.75, ["logits", "labels"], ((), ())),
    ):
        objective.progress = progress
        losses = objective(data.inputs([0, 1]), torch.tensor([0, 1]), [0, 1])
        assert list(losses) == computed == names
        assert (asked[-1].states, asked[-1].layers) == needs
        computed.clear()
    assert forwards.count == 0, "the teacher ran although its answers are kept"


def test_a_loss_listed_again_under_an_id_moves_from_layer_to_layer(teacher: Checkpoint, tmp_path: Path) -> None:
    losses = [
        {"name": "mobilebert", "id": "first", "layers": [0], "until": 0.5},
        {"name": "mobilebert", "id": "second", "layers": [1], "after": 0.5},
        {"name": "logits", "weight": 0.1},
    ]
    objective = objective_of(teacher, tmp_path, losses, THIN)
    settings = TrainSettings(epochs=1, lr=1e-4, batch_size=16)
    curves = train(objective, split(teacher), settings, seed=0, scratch=tmp_path)
    assert [value is None for value in curves["first"]] == [False] * 3 + [True] * 3
    assert [value is None for value in curves["second"]] == [True] * 3 + [False] * 3
    assert None not in curves["logits"]
    assert [objective.terms[name].states for name in ("first", "second")] == [((1, 2),), ((2, 4),)]


def test_the_second_epoch_costs_no_teacher_forward(teacher: Checkpoint, tmp_path: Path) -> None:
    losses = [{"name": "logits"}, {"name": "hidden"}, {"name": "attention"}, {"name": "minilm"}]
    objective = objective_of(teacher, tmp_path, losses)
    forwards = Forwards(objective._teacher._model)
    train(objective, split(teacher), TrainSettings(epochs=2, batch_size=32), seed=0, scratch=tmp_path)
    assert forwards.count == 0


def test_losses_are_computed_in_float32_also_under_bf16(teacher: Checkpoint, tmp_path: Path) -> None:
    losses = [{"name": "logits"}, {"name": "hidden"}, {"name": "minilmv2"}]
    objective = objective_of(teacher, tmp_path, losses)
    seen = set()
    for term in objective.terms.values():
        term.register_forward_pre_hook(
            lambda _, given: seen.update(tensor.dtype for tensor in (given[0].logits, *given[0].hidden_states.values()))
        )
    settings = TrainSettings(epochs=0.5, lr=1e-3, batch_size=16, bf16=True)
    curves = train(objective, split(teacher), settings, seed=0, scratch=tmp_path)
    assert seen == {torch.float32}
    assert np.isfinite(curves["total"]).all()


@pytest.mark.parametrize("config", [DistillConfig, QATConfig])
def test_a_list_that_says_nothing_for_a_part_of_the_run_is_refused(config: type) -> None:
    settings = {"student": {"layers": 2}} if config is DistillConfig else {}
    with pytest.raises(ValidationError, match="every loss has weight 0"):
        config.model_validate({**settings, "losses": [{"name": "logits", "until": 0.5}]})
    with pytest.raises(ValidationError, match="listed twice"):
        config.model_validate({**settings, "losses": [{"name": "logits"}, {"name": "logits"}]})


def test_a_copied_student_needs_no_projection(teacher: Checkpoint, tmp_path: Path) -> None:
    losses = [{"name": "hidden"}, {"name": "cosine"}, {"name": "attention"}]
    objective = objective_of(teacher, tmp_path, losses, CopiedStudent(layers=2))
    assert not [*objective.terms.parameters()]
