"""What every way of making a student answers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import nn

from compressor.models import unique_parameters
from compressor.stage import StageConfig


def parameters_of(config: Any) -> int:
    """Returns how many parameters a classifier of this config has; takes no memory for them."""
    from transformers import AutoModelForSequenceClassification

    with torch.device("meta"):
        return unique_parameters(AutoModelForSequenceClassification.from_config(config))


class StudentSettings(StageConfig):
    """Base of a student's settings; subclasses add a literal ``init``."""

    @abstractmethod
    def model_config_for(self, teacher_config: Any) -> Any:
        """Returns the student's transformers config.

        Raises:
            ModelError: no such student can be made of this teacher.
            RecipeError: settings that do not fit the teacher.
        """

    @abstractmethod
    def make(self, teacher: nn.Module) -> nn.Module:
        """Returns a new model, in evaluation mode, with the config of :meth:`model_config_for`."""

    def copied(self, teacher_config: Any) -> tuple[int, ...]:
        """Returns the zero-based teacher layers that the student holds; empty where its layers are new."""
        return ()
