"""The settings of ``distill``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from compressor.distill.losses import HiddenLoss, LogitsLoss, LossConfig, check_losses
from compressor.distill.students import StudentConfig
from compressor.train.settings import TrainSettings


class DistillConfig(TrainSettings):
    """Settings of ``distill``."""

    student: StudentConfig | None = None
    """A new student; without it the current checkpoint is the student and ``teacher`` must be named."""
    teacher: str | None = None
    """Id of the stage whose checkpoint teaches; the latest checkpoint where a new student is made."""
    losses: tuple[LossConfig, ...] = Field(default=(LogitsLoss(), HiddenLoss()), min_length=1)
    cache_mb: float = Field(default=1024, ge=0)
    """Most megabytes of the teacher's hidden states to keep on disk while training."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.student is None and self.teacher is None:
            raise ValueError("without 'student' the current checkpoint is the student: name its 'teacher'")
        check_losses(self.losses)
        return self
