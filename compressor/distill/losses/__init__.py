"""The distillation losses, one file each. Adding a loss is adding a file and naming it here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compressor.distill.losses.hidden import HiddenLoss
from compressor.distill.losses.labels import LabelsLoss
from compressor.distill.losses.logits import LogitsLoss

LossConfig = Annotated[LogitsLoss | HiddenLoss | LabelsLoss, Field(discriminator="name")]
"""One entry of a recipe's ``losses:``; ``name`` chooses the type."""

__all__ = ["HiddenLoss", "LabelsLoss", "LogitsLoss", "LossConfig"]
