"""A student made of its teacher: evenly spaced layers, copied with embeddings and head."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn

from compressor.core.errors import ModelError
from compressor.distill.layer_map import LayerMap, resolve_map
from compressor.distill.students.base import StudentSettings
from compressor.families import FamilyAdapter, adapter_for


class CopiedStudent(StudentSettings):
    """Embeddings, head and chosen layers are the teacher's own."""

    init: Literal["copy"] = "copy"
    layers: int = Field(gt=0)
    map: LayerMap = "uniform"
    """Which teacher layers are copied."""

    def model_config_for(self, teacher_config: Any) -> Any:
        """Returns the teacher's config with another number of layers.

        Raises:
            ModelError: a family whose layers cannot be copied.
            RecipeError: a layer map that does not fit the two depths.
        """
        check_copyable(adapter_for(teacher_config))
        self.copied(teacher_config)
        return student_config(teacher_config, self.layers)

    def make(self, teacher: nn.Module) -> nn.Module:
        """Returns the student."""
        return copy_layers(teacher, self.copied(teacher.config))

    def copied(self, teacher_config: Any) -> tuple[int, ...]:
        """Returns the teacher layers the student is made of."""
        depth = adapter_for(teacher_config).num_layers(teacher_config)
        return resolve_map(self.map, student_layers=self.layers, teacher_layers=depth)


def copy_layers(teacher: nn.Module, layers: Sequence[int]) -> nn.Module:
    """Returns a new model with the teacher's embeddings, head and the named encoder layers; all else equal.

    In a family that stores one layer and applies it many times (ALBERT), the student applies it ``len(layers)`` times.

    Args:
        teacher: a classifier of a known family.
        layers: zero-based teacher layers, in the student's order.

    Raises:
        ModelError: the family's layers cannot be copied, or the teacher's layers differ in shape from its config.
    """
    from transformers import AutoModelForSequenceClassification

    adapter = adapter_for(teacher.config)
    check_copyable(adapter)
    config = student_config(teacher.config, len(layers))
    student: nn.Module = AutoModelForSequenceClassification.from_config(config, attn_implementation="eager")
    try:
        student.load_state_dict(_renumbered(teacher, adapter, layers))
    except RuntimeError as error:
        raise ModelError(
            f"layers {list(layers)} of the teacher do not fit its own config: {error}",
            remedy="distil from a teacher whose layers all have the shape that config.json states",
        ) from error
    return student.eval()


def student_config(teacher_config: Any, layers: int) -> Any:
    """Returns a copy of the teacher's config with another number of (applied) layers."""
    config = copy.deepcopy(teacher_config)
    setattr(config, adapter_for(config).layers_key, layers)
    return config


def check_copyable(adapter: FamilyAdapter) -> None:
    """Raises ModelError for a family whose layers cannot be copied into a shallower model."""
    if not adapter.can_copy_layers:
        raise ModelError(
            f"a {adapter.model_type} student cannot be made by copying layers",
            remedy="take the distill stage out: quantize and export the model at its own depth",
        )


def _renumbered(teacher: nn.Module, adapter: FamilyAdapter, layers: Sequence[int]) -> dict[str, torch.Tensor]:
    state = teacher.state_dict()
    if adapter.shares_layers:
        return state
    prefix = f"{adapter.layers}."
    kept = {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}
    for position, layer in enumerate(layers):
        old = f"{prefix}{layer}."
        found = {name.removeprefix(old): tensor for name, tensor in state.items() if name.startswith(old)}
        kept |= {f"{prefix}{position}.{name}": tensor for name, tensor in found.items()}
    return kept
