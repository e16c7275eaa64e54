"""The distillation losses, one file each. Adding a loss is adding a file and naming it here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compressor.distill.losses.attention import AttentionLoss
from compressor.distill.losses.base import LossSettings, check_losses, needs_of
from compressor.distill.losses.cosine import CosineLoss
from compressor.distill.losses.embeddings import EmbeddingsLoss
from compressor.distill.losses.hidden import HiddenLoss
from compressor.distill.losses.labels import LabelsLoss
from compressor.distill.losses.logits import LogitsLoss
from compressor.distill.losses.minilm import MiniLMLoss
from compressor.distill.losses.minilmv2 import MiniLMv2Loss
from compressor.distill.losses.mobilebert import MobileBERTLoss

LossConfig = Annotated[
    LogitsLoss
    | LabelsLoss
    | HiddenLoss
    | EmbeddingsLoss
    | CosineLoss
    | AttentionLoss
    | MiniLMLoss
    | MiniLMv2Loss
    | MobileBERTLoss,
    Field(discriminator="name"),
]
"""One entry of a recipe's ``losses:``; ``name`` chooses the type."""

__all__ = [
    "AttentionLoss",
    "CosineLoss",
    "EmbeddingsLoss",
    "HiddenLoss",
    "LabelsLoss",
    "LogitsLoss",
    "LossConfig",
    "LossSettings",
    "MiniLMLoss",
    "MiniLMv2Loss",
    "MobileBERTLoss",
    "check_losses",
    "needs_of",
]
