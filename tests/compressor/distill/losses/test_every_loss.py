"""What holds for all losses: nothing for identical models, no trace of padding, a gradient that is the slope."""

import pytest
import torch
from pydantic import TypeAdapter

from compressor.core.errors import RecipeError
from compressor.distill.losses import LossConfig, needs_of
from compressor.distill.outputs import Outputs, Projections, Shape
from tests.compressor.distill.losses.slow import MASK, made

STUDENT = Shape(2, 6, heads=(2, 2), head_size=3)
WIDE = Shape(4, 8, heads=(2, 2, 2, 2), head_size=4)
LABELS = torch.tensor([0, 2, 1])
CASES = {
    "logits": {"name": "logits"},
    "logits mse": {"name": "logits", "kind": "mse"},
    "labels": {"name": "labels"},
    "hidden": {"name": "hidden"},
    "hidden without embeddings": {"name": "hidden", "embeddings": False, "layers": [1]},
    "embeddings": {"name": "embeddings"},
    "cosine": {"name": "cosine"},
    "cosine of all layers": {"name": "cosine", "layers": "all", "map": "last"},
    "attention": {"name": "attention"},
    "attention kl": {"name": "attention", "kind": "kl", "map": [0, 2]},
    "minilm": {"name": "minilm"},
    "minilmv2": {"name": "minilmv2"},
    "minilmv2 of a middle layer": {"name": "minilmv2", "teacher_layer": 1, "relations": ["value"], "relation_heads": 1},
    "mobilebert": {"name": "mobilebert", "mean": 2.0, "feature": 3.0},
    "mobilebert, one layer": {"name": "mobilebert", "layers": [0]},
}
every = pytest.mark.parametrize("case", CASES)


def parsed(case):
    return TypeAdapter(LossConfig).validate_python(CASES[case])


def value(term, student, teacher):
    return term(student, teacher, MASK, LABELS)


def read(outputs: Outputs, needs) -> list[torch.Tensor]:
    """The tensors that a loss reads, besides the logits."""
    states = [outputs.hidden_states[state] for state in needs.states]
    return states + [tensor for layer in needs.layers for tensor in outputs.projections[layer]]


def given(outputs: Outputs, needs) -> Outputs:
    """The same outputs without what was not asked for."""
    return Outputs(
        outputs.logits,
        {state: outputs.hidden_states[state] for state in needs.states},
        {layer: outputs.projections[layer] for layer in needs.layers},
    )


@every
def test_identical_models_have_nothing_to_learn(case: str) -> None:
    if case == "labels":
        pytest.skip("the labels are not the teacher's")
    if "middle" in case:
        pytest.skip("two different layers are compared")
    settings = parsed(case).model_copy(update={"map": "uniform"}) if "map" in CASES[case] else parsed(case)
    same = made(STUDENT, seed=1)
    term = settings.term(STUDENT, STUDENT).double()
    assert value(term, same, same).item() == pytest.approx(0, abs=1e-12)
    assert value(term, same, made(STUDENT, seed=2)).item() > 1e-3


@every
def test_padding_leaves_no_trace(case: str) -> None:
    settings = parsed(case)
    ours, theirs = needs_of([settings], STUDENT, WIDE)
    term = settings.term(STUDENT, WIDE).double()
    found = []
    for junk in (None, 1e6, float("nan")):
        student, teacher = given(made(STUDENT, seed=3), ours), given(made(WIDE, seed=4), theirs)
        inputs = [student.logits, *read(student, ours)]
        for tensor in (*read(student, ours), *read(teacher, theirs)):
            if junk is not None:
                tensor[~MASK.bool()] = junk
        for tensor in inputs:
            tensor.requires_grad_()
        term.zero_grad()
        loss = value(term, student, teacher)
        loss.backward()
        gradients = [tensor.grad for tensor in (*inputs, *term.parameters()) if tensor.grad is not None]
        found.append((loss.detach(), gradients))
        assert all(
            gradient[~MASK.bool()].abs().sum() == 0 for gradient in gradients if gradient.shape[:2] == MASK.shape
        )
    (loss, gradients), *others = found
    assert torch.isfinite(loss)
    assert any(gradient.abs().sum() > 0 for gradient in gradients)
    for other, theirs in others:
        assert torch.equal(loss, other)
        assert all(torch.equal(a, b) for a, b in zip(gradients, theirs, strict=True))


@every
def test_the_gradient_is_the_slope(case: str) -> None:
    settings = parsed(case)
    ours, theirs = needs_of([settings], STUDENT, WIDE)
    term = settings.term(STUDENT, WIDE).double()
    student, teacher = made(STUDENT, seed=5), given(made(WIDE, seed=6), theirs)

    def loss(logits: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        states, rest = tensors[: len(ours.states)], tensors[len(ours.states) :]
        layers = {layer: Projections(*rest[3 * at : 3 * at + 3]) for at, layer in enumerate(ours.layers)}
        return value(term, Outputs(logits, dict(zip(ours.states, states, strict=True)), layers), teacher)

    points = [tensor.requires_grad_() for tensor in (student.logits, *read(student, ours))]
    assert torch.autograd.gradcheck(loss, points, fast_mode=True)


@every
def test_a_map_beyond_the_depth_is_refused(case: str) -> None:
    if "map" not in type(parsed(case)).model_fields:
        pytest.skip("has no layer map")
    settings = parsed(case).model_copy(update={"map": (0, 4), "layers": "all"})
    with pytest.raises(RecipeError, match="expected 0 to 3"):
        needs_of([settings], STUDENT, WIDE)


@pytest.mark.parametrize("name", ["attention", "minilm", "minilmv2", "mobilebert"])
def test_a_model_without_attentions_is_refused(name: str) -> None:
    settings = TypeAdapter(LossConfig).validate_python({"name": name})
    with pytest.raises(RecipeError, match=r"the teacher gives no queries, keys and values"):
        needs_of([settings], STUDENT, Shape(4, 8))


@pytest.mark.parametrize("name", ["attention", "minilm", "mobilebert"])
def test_scores_with_positions_and_unequal_heads_are_refused(name: str) -> None:
    settings = TypeAdapter(LossConfig).validate_python({"name": name})
    deberta = Shape(4, 8, heads=(2, 2, 2, 2), head_size=4, plain_scores=False)
    with pytest.raises(RecipeError, match=r"teacher's attention scores hold relative positions") as error:
        needs_of([settings], STUDENT, deberta)
    assert "minilmv2" in error.value.remedy
    with pytest.raises(RecipeError, match=r"student layer 1 has 2 attention heads and teacher layer 3 4") as error:
        needs_of([settings], STUDENT, Shape(4, 8, heads=(2, 2, 2, 4), head_size=4))
    assert "minilmv2" in error.value.remedy
    needs_of([TypeAdapter(LossConfig).validate_python({"name": "minilmv2"})], STUDENT, deberta)
