"""The weighted distillation losses of one batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from compressor.distill.capture import run_model
from compressor.distill.losses import LossConfig, needs_of
from compressor.distill.outputs import Shape
from compressor.distill.teacher import TeacherOutputs
from compressor.pretrain.encoders import encoder_of
from compressor.pretrain.objectives.mlm import MLM, MaskedTerm
from compressor.text import ATTENTION_MASK
from compressor.train.objective import Inputs, Objective
from compressor.train.weights import WeightAt


class Distillation(Objective):
    """Runs the student, asks the teacher's cache, and returns one value for each loss that counts at the moment.

    Args:
        student: the model that learns.
        teacher: the teacher's outputs on the training split.
        losses: the configured losses.
        student_shape: depth, width and heads of the student.
        teacher_shape: depth, width and heads of the teacher.
        masked: masked language modelling beside them, with its weight.
    """

    def __init__(
        self,
        student: nn.Module,
        teacher: TeacherOutputs,
        losses: Sequence[LossConfig],
        *,
        student_shape: Shape,
        teacher_shape: Shape,
        masked: tuple[MaskedTerm, float | WeightAt] | None = None,
    ) -> None:
        super().__init__(student, {loss.key: loss.weight_at for loss in losses})
        self.terms = nn.ModuleDict({loss.key: loss.term(student_shape, teacher_shape) for loss in losses})
        self.masked = None
        if masked is not None:
            self.masked, self.weights[MLM] = masked
        self._teacher = teacher
        self._losses = tuple(losses)
        self._shapes = student_shape, teacher_shape

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns {loss: value}; see :meth:`Objective.forward`."""
        active = [loss for loss in self._losses if self.weight_of(loss.key) > 0]
        ours, theirs = needs_of(active, *self._shapes)
        teacher = self._teacher.batch(indices, theirs)
        student = run_model(self.model, inputs, ours.states, ours.layers)
        mask = inputs[ATTENTION_MASK]
        # The student may compute in bfloat16; what is subtracted from it may not.
        with torch.autocast(mask.device.type, enabled=False):
            student = student.float()
            losses = {loss.key: self.terms[loss.key](student, teacher, mask, labels) for loss in active}
        if self.masked is not None and self.weight_of(MLM) > 0:
            losses[MLM] = self.masked(encoder_of(self.model), inputs, indices, self.epoch)
        return losses

    def units(self, indices: Sequence[int], lengths: Sequence[int]) -> dict[str, float]:
        """Returns over how many sentences, tokens or pairs of tokens each loss is a mean; see the base class."""
        found = {loss.key: loss.units(lengths) for loss in self._losses}
        return found if self.masked is None else {**found, MLM: self.masked.units(indices, self.epoch)}
