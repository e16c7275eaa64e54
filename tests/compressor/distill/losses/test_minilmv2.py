"""MiniLMv2's relations against loops, with heads and widths that differ between the models."""

import pytest
import torch
from pydantic import ValidationError

from compressor.core.errors import RecipeError
from compressor.distill.losses.minilmv2 import MiniLMv2Loss, minilmv2_loss
from compressor.distill.outputs import Shape
from tests.compressor.distill.losses.slow import MASK, made, mean, relations, slow_kl

STUDENT = Shape(2, 12, heads=(3, 3), head_size=4)
TEACHER = Shape(3, 8, heads=(2, 2, 4), head_size=2)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_unequal_heads_and_widths(heads: int) -> None:
    ours, theirs = made(STUDENT, seed=1).projections[1], made(TEACHER, seed=2).projections[2]
    expected = [
        slow_kl(relations(mine, mine, heads), relations(yours, yours, heads))
        for mine, yours in zip(ours, theirs, strict=True)
    ]
    found = minilmv2_loss(ours, theirs, MASK, relation_heads=heads)
    assert found.item() == pytest.approx(mean(expected), rel=1e-9)
    found = minilmv2_loss(ours, theirs, MASK, relation_heads=heads, relations=("key",))
    assert found.item() == pytest.approx(expected[1], rel=1e-9)


def test_by_default_the_teachers_last_layer_in_its_own_heads() -> None:
    student, teacher = made(STUDENT, seed=3), made(TEACHER, seed=4)
    for settings, layer, heads in (
        (MiniLMv2Loss(), 2, 4),
        (MiniLMv2Loss(teacher_layer=1), 1, 2),
        (MiniLMv2Loss(teacher_layer=0, relation_heads=1), 0, 1),
    ):
        assert settings.layer_pairs(STUDENT, TEACHER) == ((1, layer),)
        found = settings.term(STUDENT, TEACHER)(student, teacher, MASK, torch.zeros(3))
        expected = minilmv2_loss(student.projections[1], teacher.projections[layer], MASK, relation_heads=heads)
        assert found.item() == pytest.approx(expected.item())


def test_refusals() -> None:
    with pytest.raises(RecipeError, match=r"3 relation heads do not divide .* 12 .* 8 .*expected one of 1, 2, 4"):
        MiniLMv2Loss(relation_heads=3).layer_pairs(STUDENT, TEACHER)
    with pytest.raises(RecipeError, match="expected 0 to 2"):
        MiniLMv2Loss(teacher_layer=3).layer_pairs(STUDENT, TEACHER)
    with pytest.raises(ValidationError):
        MiniLMv2Loss(relation_heads=0)
    with pytest.raises(ValidationError):
        MiniLMv2Loss(relations=())
