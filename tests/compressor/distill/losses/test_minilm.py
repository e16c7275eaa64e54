"""MiniLM's two divergences against loops over sentences, heads and tokens."""

import pytest
import torch

from compressor.distill.losses.minilm import MiniLMLoss, minilm_loss
from compressor.distill.outputs import Shape
from tests.compressor.distill.losses.slow import MASK, made, relations, slow_kl

STUDENT = Shape(2, 6, heads=(2, 2), head_size=3)
TEACHER = Shape(4, 8, heads=(2, 2, 2, 2), head_size=4)


def test_minilm() -> None:
    student, teacher = made(STUDENT, seed=1), made(TEACHER, seed=2)
    ours, theirs = student.projections[1], teacher.projections[3]
    attention = slow_kl(relations(ours.query, ours.key, 2), relations(theirs.query, theirs.key, 2))
    values = slow_kl(relations(ours.value, ours.value, 2), relations(theirs.value, theirs.value, 2))
    assert minilm_loss(ours, theirs, MASK, heads=2).item() == pytest.approx(attention + values, rel=1e-9)
    found = MiniLMLoss().term(STUDENT, TEACHER)(student, teacher, MASK, torch.zeros(3))
    assert found.item() == pytest.approx(attention + values, rel=1e-9), "the last layers are compared"
