"""What every way of making a student answers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

from compressor.stage import StageConfig


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
