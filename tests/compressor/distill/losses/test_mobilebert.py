"""MobileBERT's feature map and attention transfer against loops over real tokens."""

import math

import pytest
import torch
from pydantic import ValidationError

from compressor.distill.losses.attention import attention_loss
from compressor.distill.losses.mobilebert import MobileBERTLoss, feature_map_loss
from compressor.distill.outputs import Shape
from tests.compressor.distill.losses.slow import MASK, made, mean, numbers, sentences

STUDENT = Shape(2, 6, heads=(2, 2), head_size=3)
TEACHER = Shape(4, 6, heads=(2, 2, 2, 2), head_size=3)


def moments(vector: list[float]) -> tuple[float, float]:
    centre = mean(vector)
    return centre, mean([(x - centre) ** 2 for x in vector])


def slow_feature_maps(student: torch.Tensor, teacher: torch.Tensor) -> tuple[float, float, float]:
    normalized, means, variances = [], [], []
    for ours, theirs in zip(sentences(student), sentences(teacher), strict=True):
        for u, v in zip(ours, theirs, strict=True):
            (m, s), (n, t) = moments(u), moments(v)
            means.append((m - n) ** 2)
            variances.append(abs(s - t))
            normalized += [
                ((x - m) / math.sqrt(s + 1e-5) - (y - n) / math.sqrt(t + 1e-5)) ** 2 for x, y in zip(u, v, strict=True)
            ]
    return mean(normalized), mean(means), mean(variances)


def test_feature_maps() -> None:
    student, teacher = numbers(3, 4, 6, seed=1), numbers(3, 4, 6, seed=2)
    found = feature_map_loss(student, teacher, MASK)
    assert tuple(part.item() for part in found) == pytest.approx(slow_feature_maps(student, teacher), rel=1e-9)


@pytest.mark.parametrize(("layers", "pairs"), [("all", ((0, 1), (1, 3))), ((0,), ((0, 1),)), ((1,), ((1, 3),))])
def test_layer_by_layer_then_jointly(layers, pairs) -> None:
    settings = MobileBERTLoss(layers=layers, feature=2.0, mean=3.0, variance=0.5, attention=0.7)
    student, teacher = made(STUDENT, seed=3), made(TEACHER, seed=4)
    assert settings.layer_pairs(STUDENT, TEACHER) == pairs
    found = settings.term(STUDENT, TEACHER)(student, teacher, MASK, torch.zeros(3))
    maps, attentions = [], []
    for ours, theirs in pairs:
        parts = slow_feature_maps(student.hidden_states[ours + 1], teacher.hidden_states[theirs + 1])
        maps.append(2.0 * parts[0] + 3.0 * parts[1] + 0.5 * parts[2])
        heads = student.projections[ours], teacher.projections[theirs]
        attentions.append(attention_loss(*heads, MASK, heads=2, kind="kl").item())
    assert found.item() == pytest.approx(mean(maps) + 0.7 * mean(attentions), rel=1e-9)


def test_without_attentions_unequal_heads_and_widths_are_fine() -> None:
    teacher = Shape(4, 8, heads=(4, 4, 4, 4), head_size=2)
    settings = MobileBERTLoss(attention=0)
    assert settings.layer_pairs(STUDENT, teacher) == ()
    term = settings.term(STUDENT, teacher).double()
    assert [tuple(parameter.shape) for parameter in term.parameters()] == [(8, 6)] * 2
    assert torch.isfinite(term(made(STUDENT, seed=5), made(teacher, seed=6), MASK, torch.zeros(3)))


def test_a_loss_of_nothing_is_refused() -> None:
    nothing = {"feature": 0, "mean": 0, "variance": 0}
    assert MobileBERTLoss.model_validate(nothing).attention == 1
    with pytest.raises(ValidationError, match="leave the loss out"):
        MobileBERTLoss.model_validate({**nothing, "attention": 0})
