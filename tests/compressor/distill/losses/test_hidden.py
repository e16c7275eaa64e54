"""Hidden states, embeddings and cosine against loops over real tokens."""

import math

import pytest
import torch

from compressor.core.errors import RecipeError
from compressor.distill.losses import CosineLoss, EmbeddingsLoss, HiddenLoss
from compressor.distill.losses.cosine import cosine_loss
from compressor.distill.losses.hidden import hidden_loss
from compressor.distill.outputs import Shape
from tests.compressor.distill.losses.slow import MASK, made, mean, numbers, sentences, slow_mse

STUDENT, TEACHER = Shape(2, 3), Shape(4, 5)


def slow_hidden(student: torch.Tensor, teacher: torch.Tensor) -> float:
    return slow_mse([*sentences(student)], [*sentences(teacher)])


def slow_cosine(student: torch.Tensor, teacher: torch.Tensor) -> float:
    found = []
    for ours, theirs in zip(sentences(student), sentences(teacher), strict=True):
        for u, v in zip(ours, theirs, strict=True):
            dot = sum(x * y for x, y in zip(u, v, strict=True))
            found.append(1 - dot / math.sqrt(sum(x * x for x in u)) / math.sqrt(sum(y * y for y in v)))
    return mean(found)


@pytest.mark.parametrize(("loss", "slow"), [(hidden_loss, slow_hidden), (cosine_loss, slow_cosine)])
def test_against_loops(loss, slow) -> None:
    student, teacher = numbers(3, 4, 5, seed=4), numbers(3, 4, 5, seed=5)
    assert loss(student, teacher, MASK).item() == pytest.approx(slow(student, teacher), rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "pairs", "slow"),
    [
        (HiddenLoss(map=(0, 3)), ((0, 0), (1, 1), (2, 4)), slow_hidden),
        (HiddenLoss(embeddings=False), ((1, 2), (2, 4)), slow_hidden),
        (HiddenLoss(map="last", layers=(0,), embeddings=False), ((1, 3),), slow_hidden),
        (EmbeddingsLoss(), ((0, 0),), slow_hidden),
        (CosineLoss(), ((2, 4),), slow_cosine),
        (CosineLoss(layers="all"), ((1, 2), (2, 4)), slow_cosine),
    ],
)
def test_terms_pair_layers_and_project_only_where_widths_differ(settings, pairs, slow) -> None:
    assert settings.state_pairs(STUDENT, TEACHER) == pairs
    assert not list(settings.term(Shape(2, 8), Shape(4, 8)).parameters())
    term = settings.term(STUDENT, TEACHER).double()
    assert [tuple(parameter.shape) for parameter in term.parameters()] == [(5, 3)] * len(pairs)
    ours, theirs = made(STUDENT, seed=1), made(TEACHER, seed=2)
    found = term(ours, theirs, MASK, torch.zeros(3))
    expected = [
        slow(projection(ours.hidden_states[mine]), theirs.hidden_states[yours])
        for (mine, yours), projection in zip(pairs, term.projections, strict=True)
    ]
    assert found.item() == pytest.approx(mean(expected), rel=1e-9)


def test_layers_outside_the_map_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"layers: \[2\].*expected some of \[0, 1\]"):
        HiddenLoss(layers=(2,)).state_pairs(STUDENT, TEACHER)
    assert HiddenLoss(layers=(7,), embeddings=False).state_pairs(Shape(8, 3), TEACHER) == ((8, 4),)
    with pytest.raises(RecipeError, match=r"expected some of \[1, 3, 5, 7\]"):
        HiddenLoss(layers=(2,)).state_pairs(Shape(8, 3), TEACHER)
