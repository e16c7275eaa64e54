"""A student of its own shape, of any family: new layers under embeddings that are made of the teacher's."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from compressor.core.errors import RecipeError, nearest
from compressor.data.batches import EncodedSplit
from compressor.distill.students.base import StudentSettings
from compressor.distill.students.presets import PRESETS, PresetName
from compressor.families import ADAPTERS, adapter_for


class NewStudent(StudentSettings):
    """Layers start at random; word embeddings start as the teacher's, in as many dimensions as the student has."""

    init: Literal["new"]
    preset: PresetName | None = None
    """A published shape; see :data:`compressor.distill.students.presets.PRESETS`."""
    family: str = ""
    """A ``model_type``: bert, mobilebert, albert, electra, …; the preset's where there is one."""
    config: dict[str, int | float | str | bool] = Field(default_factory=dict)
    """Keys of that family's transformers config, over the preset's; vocabulary, labels and number of tokens are the
    teacher's."""

    @model_validator(mode="before")
    @classmethod
    def _shape(cls, value: Any) -> Any:
        """Fills family and config from the preset."""
        if not isinstance(value, dict) or value.get("preset") not in PRESETS:
            return value
        preset = PRESETS[value["preset"]]
        if value.get("family", preset.family) != preset.family:
            raise ValueError(f"the preset '{value['preset']}' is a {preset.family}: leave 'family' out")
        return {**value, "family": preset.family, "config": {**preset.config, **(value.get("config") or {})}}

    @model_validator(mode="after")
    def _some_family(self) -> Self:
        if not self.family:
            raise ValueError("a new student needs a 'preset' or a 'family'")
        return self

    def model_config_for(self, teacher_config: Any) -> Any:
        """Returns the config: the family's defaults, the teacher's vocabulary and labels, then preset and ``config``.

        Raises:
            RecipeError: an unknown family, a key its config does not have, or values that make no model.
        """
        from transformers import AutoConfig

        if self.family not in ADAPTERS:
            raise RecipeError(
                f"no model family '{self.family}'; expected one of {', '.join(sorted(ADAPTERS))}",
                remedy=nearest(self.family, ADAPTERS),
            )
        known = set(AutoConfig.for_model(self.family).to_dict())
        for key in self.config:
            if key not in known or key in _TEACHERS:
                raise RecipeError(
                    f"'{key}' is no setting of a new {self.family} student", remedy=nearest(key, known - _TEACHERS)
                )
        tokens = adapter_for(teacher_config).max_tokens(teacher_config)
        theirs = {key: getattr(teacher_config, key) for key in ("vocab_size", "pad_token_id", "id2label", "label2id")}
        positions = {"max_position_embeddings": tokens + ADAPTERS[self.family].position_offset}
        try:
            return AutoConfig.for_model(self.family, **theirs, **positions, **self.config)
        except (TypeError, ValueError) as error:
            raise _no_model(self.family, error) from error

    def make(self, teacher: nn.Module, text: EncodedSplit | None = None) -> nn.Module:
        """Returns the student; random numbers come from torch's global stream.

        Raises:
            RecipeError: values that make no model, e.g. a width that the heads do not divide.
        """
        from transformers import AutoModelForSequenceClassification

        config = self.model_config_for(teacher.config)
        try:
            student: nn.Module = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
        except (ValueError, RuntimeError) as error:
            raise _no_model(self.family, error) from error
        ours = adapter_for(config).word_embedding(student)
        theirs = adapter_for(teacher.config).word_embedding(teacher)
        with torch.no_grad():
            ours.weight.copy_(narrowed(theirs.weight, ours.embedding_dim))
        return student.eval()


def _no_model(family: str, error: Exception) -> RecipeError:
    return RecipeError(
        f"the {family} student's config makes no model: {error}",
        remedy="expected widths that the number of heads divides, as that family's published configs have",
    )


_TEACHERS = {"vocab_size", "pad_token_id", "id2label", "label2id", "num_labels", "max_position_embeddings",
             "model_type", "architectures", "transformers_version", "dtype"}  # fmt: skip
"""What a student takes from its teacher, or what is no choice."""


def narrowed(table: torch.Tensor, width: int) -> torch.Tensor:
    """Returns an embedding table in its ``width`` principal directions: the nearest there is of that rank.

    Args:
        table: shape (vocabulary, teacher's width).
        width: the student's width; directions beyond the teacher's are zero.

    Returns:
        Shape (vocabulary, width), with the teacher's mean square per entry.
    """
    table = table.detach().float()
    if width == table.shape[1]:
        return table
    _, vectors = torch.linalg.eigh(table.T @ table)  # ascending eigenvalues
    found = table @ vectors.flip(1)[:, :width]
    found = nn.functional.pad(found, (0, width - found.shape[1]))
    return found * (table.square().mean() / found.square().mean()).sqrt()
