"""The settings of ``distill``."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from compressor.augment.config import AugmentConfig
from compressor.distill.losses import HiddenLoss, LogitsLoss, LossConfig, check_losses
from compressor.distill.students import StudentConfig
from compressor.pretrain.config import MixedLanguageModel
from compressor.pretrain.objectives.mlm import MLM
from compressor.train.settings import TrainSettings


class DistillConfig(TrainSettings):
    """Settings of ``distill``."""

    student: StudentConfig | None = None
    """A new student; without it the current checkpoint is the student and ``teacher`` must be named."""
    teacher: str | None = None
    """Id of the stage whose checkpoint teaches; the latest checkpoint where a new student is made."""
    losses: tuple[LossConfig, ...] = Field(default=(LogitsLoss(), HiddenLoss()), min_length=1)
    mlm: MixedLanguageModel | None = None
    """Masked language modelling beside the losses: a pass of its own over masked copies of the batch, so that
    the teacher's answers to the clean texts stay valid."""
    augment: AugmentConfig | None = None
    """Variants of the training texts, answered by the teacher alone, are learnt beside the texts themselves."""
    progressive: bool = False
    """Train the student's layers one after the other, the ones below frozen, each for an equal share of the epochs."""
    cache_mb: float = Field(default=1024, ge=0)
    """Most megabytes of the teacher's hidden states to keep on disk while training."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.student is None and self.teacher is None:
            raise ValueError("without 'student' the current checkpoint is the student: name its 'teacher'")
        check_losses(self.losses)
        if self.progressive and self.mlm is not None:
            raise ValueError("'mlm' trains the whole student: use it in a joint stage, not with 'progressive'")
        if self.mlm is not None and any(loss.key == MLM for loss in self.losses):
            raise ValueError(f"the id '{MLM}' of a loss is the name of masked language modelling: give it another")
        if self.augment is not None and (supervised := [loss.name for loss in self.losses if loss.name == "labels"]):
            raise ValueError(
                f"the loss '{supervised[0]}' needs true labels, which augmented texts do not have: take one of both out"
            )
        return self
