"""The settings of ``pretrain``, and of a masked-language-model loss beside distillation."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from compressor.stage import StageConfig
from compressor.train.settings import TrainSettings
from compressor.train.weights import Scheduled


class MaskSettings(StageConfig):
    """Which tokens are hidden; the defaults are BERT's (Devlin et al. 2019, section 3.1) with RoBERTa's new masks."""

    share: float = Field(default=0.15, gt=0, lt=1)
    """Share of a text's tokens that are to be predicted; at least one."""
    mask_share: float = Field(default=0.8, ge=0, le=1)
    """Of those, the share that becomes the mask token."""
    random_share: float = Field(default=0.1, ge=0, le=1)
    """Of those, the share that becomes a random piece; the rest stays as it is."""
    masking: Literal["dynamic", "static"] = "dynamic"
    """``dynamic``: other tokens in every epoch (Liu et al. 2019, section 4.1); ``static``: the same ones."""
    whole_word: bool = False
    """Hide all pieces of a word or none."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.mask_share + self.random_share > 1:
            raise ValueError("mask_share and random_share add up to more than 1")
        return self


class MixedLanguageModel(MaskSettings, Scheduled):
    """A masked-language-model loss beside the losses of ``distill``, with a weight as theirs."""


class GeneratorSettings(StageConfig):
    """The small model whose guesses replace tokens (Clark et al. 2020, sections 2 and 3.2)."""

    width: float = Field(default=0.25, gt=0, le=1)
    """Its width, heads and feed-forward width as a share of the model's."""
    layers: int | None = Field(default=None, gt=0)
    """Its depth; default the model's."""
    weight: float = Field(default=50.0, gt=0)
    """Factor of the loss on replaced tokens; the generator's own has 1."""


class PretrainConfig(TrainSettings, MaskSettings):
    """Settings of ``pretrain``."""

    objective: Literal["mlm", "mlm+sop", "rtd"] = "mlm"
    """Masked words; masked words and the order of sentences; or replaced words."""
    texts: Path | None = None
    """Text to learn from: one text a line of a ``.txt`` file, or the text column of a table; default the recipe's
    training texts."""
    generator: GeneratorSettings = GeneratorSettings()
    """Of the objective ``rtd``."""
    held_out_tokens: int = Field(default=2000, gt=0)
    """Most tokens of the validation texts on which the model is measured before and after."""

    @model_validator(mode="after")
    def _of_the_objective(self) -> Self:
        idle = {"mask_share", "random_share"} if self.objective == "rtd" else {"generator"}
        if found := idle & self.model_fields_set:
            raise ValueError(f"'{min(found)}' changes nothing with 'objective: {self.objective}': leave it out")
        return self
