from pathlib import Path

import pytest
import torch

from compressor.core.errors import RecipeError
from compressor.distill.config import DistillConfig
from compressor.distill.outputs import Shape
from compressor.distill.progressive import Part, _only, plan_parts
from compressor.distill.stage import Distill
from compressor.families import adapter_for
from compressor.models import load_compressed
from tests.compressor.tiny_data import context, run_stage
from tests.models import FAMILIES

TRAIN = {"epochs": 2, "lr": 2e-3, "batch_size": 8, "progressive": True}


def config(**more) -> DistillConfig:
    losses = [{"name": "hidden"}]
    return DistillConfig.model_validate({**TRAIN, "student": {"layers": 2}, "losses": losses, **more})


def shape(layers: int) -> Shape:
    return Shape(layers=layers, hidden_size=32, heads=(4,) * layers, head_size=8)


def parts(losses, student: int, teacher: int) -> tuple[Part, ...]:
    return plan_parts(config(losses=losses).losses, shape(student), shape(teacher))


def test_parts_end_where_a_teacher_layer_is_followed() -> None:
    found = parts([{"name": "hidden"}, {"name": "embeddings"}], 3, 6)
    assert [part.layers for part in found] == [(0,), (1,), (2,)]
    assert [len(part.losses) for part in found] == [2, 1, 1]
    assert [part.losses[0].state_pairs(shape(3), shape(6)) for part in found] == [
        ((0, 0), (1, 2)),
        ((2, 4),),
        ((3, 6),),
    ]
    deep = parts([{"name": "mobilebert"}], 12, 3)
    assert [part.layers for part in deep] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11)]


def test_only_the_layers_of_a_part_move_and_the_embeddings_with_the_first(teacher) -> None:
    model = load_compressed(teacher)

    def moving() -> set[str]:
        return {name.split(".layer.")[-1].split(".")[0] for name, p in model.named_parameters() if p.requires_grad}

    everything = moving()
    with _only(model, (0, 1)):
        assert moving() == {"0", "1", "bert"}
        assert model.bert.embeddings.word_embeddings.weight.requires_grad
        assert not model.bert.pooler.dense.weight.requires_grad
    with _only(model, (2,)):
        assert moving() == {"2"}
    assert moving() == everything


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_of_the_body_has_a_part_that_trains_it(family: str, checkpoint_of) -> None:
    model = load_compressed(checkpoint_of(family))
    adapter = adapter_for(model.config)
    count = len(adapter.stored_layers(model))
    trained: list[str] = []
    for layer in range(count):
        with _only(model, (layer,)):
            trained += [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert sorted(trained) == sorted(name for name, _ in model.named_parameters() if adapter.in_body(name))


def test_layer_by_layer_then_killed_and_resumed_to_the_same(teacher, tmp_path: Path) -> None:
    seen: list[float] = []

    def stop(done: int, total: int, note: str = "") -> None:
        if note.startswith("loss"):
            seen.append(done)
            if len(seen) == 17:  # within the second part of twelve steps each
                raise KeyboardInterrupt

    settings = config(checkpoint_steps=3)
    whole = run_stage(Distill(settings), context(tmp_path / "a", teacher), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run_stage(Distill(settings), context(tmp_path / "b", teacher, progress=stop), tmp_path / "cut")
    again = run_stage(Distill(settings), context(tmp_path / "b", teacher), tmp_path / "again")
    assert whole["progressive"] == [[0], [1]]
    assert again["curves"] == whole["curves"]
    assert list(whole["curves"]) == ["hidden", "total"]
    assert len(whole["curves"]["total"]) == 24
    one, two = (load_compressed(tmp_path / name).state_dict() for name in ("whole", "again"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    untouched = load_compressed(teacher).state_dict()
    assert torch.equal(one["classifier.weight"], untouched["classifier.weight"])
    assert not torch.equal(
        one["bert.encoder.layer.0.output.dense.weight"], untouched["bert.encoder.layer.1.output.dense.weight"]
    )


@pytest.mark.parametrize(("losses", "message"), [
    ([{"name": "hidden"}, {"name": "logits"}], "'logits' is of the whole student"),
    ([{"name": "hidden", "weight": {"from": 1.0, "to": 0.5}}], "has a schedule"),
    ([{"name": "embeddings"}], "needs a loss that compares layers"),
])  # fmt: skip
def test_losses_that_are_not_of_layers(losses, message) -> None:
    with pytest.raises(RecipeError, match=message):
        parts(losses, 2, 4)


def test_layers_that_share_their_weights_are_refused(teacher, tmp_path: Path) -> None:
    shape = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    student = {"init": "new", "family": "albert", "config": {**shape, "embedding_size": 16}}
    with pytest.raises(RecipeError, match="weights of its own"):
        Distill(config(student=student)).requires(context(tmp_path, teacher))
