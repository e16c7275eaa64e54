"""The weighted distillation losses of one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from compressor.distill.losses import LossConfig
from compressor.distill.outputs import Shape
from compressor.distill.teacher import TeacherOutputs, run_model
from compressor.text import ATTENTION_MASK
from compressor.train.objective import Inputs, Objective


class Distillation(Objective):
    """Runs the student, asks the teacher's cache, and returns one value for each configured loss.

    Args:
        student: the model that learns.
        teacher: the teacher's outputs on the training split.
        losses: the configured losses.
        student_shape: depth and width of the student.
        teacher_shape: depth and width of the teacher.
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: TeacherOutputs,
        losses: Sequence[LossConfig],
        *,
        student_shape: Shape,
        teacher_shape: Shape,
    ) -> None:
        super().__init__(student, {loss.name: loss.weight for loss in losses})
        self.terms = nn.ModuleDict({loss.name: loss.term(student_shape, teacher_shape) for loss in losses})
        self._teacher = teacher
        pairs = [pair for loss in losses for pair in loss.state_pairs(student_shape, teacher_shape)]
        self._states = sorted({ours for ours, _ in pairs})

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns {loss name: value}; see :meth:`Objective.forward`."""
        teacher = self._teacher.batch(indices)
        student = run_model(self.model, inputs, self._states)
        mask = inputs[ATTENTION_MASK]
        return {name: term(student, teacher, mask, labels) for name, term in self.terms.items()}
