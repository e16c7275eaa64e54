"""Attention scores and distributions against loops over sentences, heads and tokens."""

import pytest
import torch

from compressor.distill.losses.attention import AttentionLoss, attention_loss
from compressor.distill.losses.relations import relation
from compressor.distill.outputs import Shape
from tests.compressor.distill.losses.slow import MASK, made, mean, numbers, relations, slow_kl, slow_mse

STUDENT = Shape(2, 6, heads=(2, 2), head_size=3)
TEACHER = Shape(4, 8, heads=(2, 2, 2, 2), head_size=4)


def test_relation_is_the_scaled_product_and_zero_in_padding() -> None:
    left, right = numbers(3, 4, 6, seed=1), numbers(3, 4, 6, seed=2)
    found = relation(left, right, MASK, heads=2)
    expected = iter(relations(left, right, 2))
    for row, length in enumerate(MASK.sum(dim=1).tolist()):
        for head in range(2):
            assert found[row, head, :length, :length].tolist() == [pytest.approx(line) for line in next(expected)]
        assert found[row, :, length:].abs().sum() == found[row, :, :, length:].abs().sum() == 0


@pytest.mark.parametrize(("kind", "slow"), [("mse", slow_mse), ("kl", slow_kl)])
@pytest.mark.parametrize("mask", [MASK, torch.ones(1, 1, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)])
def test_attention(kind, slow, mask: torch.Tensor) -> None:
    ours, theirs = (made(shape, seed=seed, mask=mask).projections[1] for shape, seed in ((STUDENT, 3), (TEACHER, 4)))
    found = attention_loss(ours, theirs, mask, heads=2, kind=kind).item()
    expected = slow(relations(ours.query, ours.key, 2, mask), relations(theirs.query, theirs.key, 2, mask))
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_term_is_the_mean_over_mapped_layers() -> None:
    settings = AttentionLoss(map=(0, 2))
    assert settings.layer_pairs(STUDENT, TEACHER) == ((0, 0), (1, 2))
    student, teacher = made(STUDENT, seed=5), made(TEACHER, seed=6)
    found = settings.term(STUDENT, TEACHER)(student, teacher, MASK, torch.zeros(3)).item()
    expected = mean(
        [
            attention_loss(student.projections[ours], teacher.projections[theirs], MASK, heads=2).item()
            for ours, theirs in ((0, 0), (1, 2))
        ]
    )
    assert found == pytest.approx(expected)
