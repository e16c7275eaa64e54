"""What every way of making a student answers."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

from compressor.data.batches import EncodedSplit
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

    @property
    def sample(self) -> int:
        """How many training sentences decide what becomes of the student; 0 where none do."""
        return 0

    @abstractmethod
    def make(self, teacher: nn.Module, text: EncodedSplit | None = None) -> nn.Module:
        """Returns a new model, in evaluation mode, with the config of :meth:`model_config_for`.

        Args:
            teacher: a classifier in evaluation mode.
            text: :attr:`sample` training sentences as the teacher reads them, where there is to be a sample.
        """

    def copied(self, teacher_config: Any) -> tuple[int, ...]:
        """Returns the zero-based teacher layers that the student holds; empty where its layers are new."""
        return ()
