"""A student made of its teacher: evenly spaced layers, copied with embeddings and head."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field
from torch import nn

from compressor.core.errors import ModelError
from compressor.data.batches import EncodedSplit
from compressor.distill.layer_map import LayerMap, resolve_map
from compressor.distill.students.base import StudentSettings
from compressor.families import FamilyAdapter, adapter_for
from compressor.prune.plan import shallower
from compressor.prune.surgery import keep_layers
from compressor.shapes import forecast_shape, with_shape


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
        kept = self.copied(teacher_config)
        shape = forecast_shape(teacher_config)
        if shape is None:
            return student_config(teacher_config, self.layers)
        return with_shape(*shallower(teacher_config, shape, kept))

    def make(self, teacher: nn.Module, text: EncodedSplit | None = None) -> nn.Module:
        """Returns the student."""
        return copy_layers(teacher, self.copied(teacher.config))

    def copied(self, teacher_config: Any) -> tuple[int, ...]:
        """Returns the teacher layers the student is made of."""
        depth = adapter_for(teacher_config).num_layers(teacher_config)
        return resolve_map(self.map, student_layers=self.layers, teacher_layers=depth)


def copy_layers(teacher: nn.Module, layers: Sequence[int]) -> nn.Module:
    """Returns a new model with the teacher's embeddings, head and the named encoder layers; all else equal.

    In a family that stores one layer and applies it many times (ALBERT), the student applies it ``len(layers)`` times.
    Uneven, shared and factorised teachers give such students.

    Args:
        teacher: a classifier of a known family.
        layers: zero-based teacher layers, in the student's order.

    Raises:
        ModelError: the family's layers cannot be copied.
    """
    adapter = adapter_for(teacher.config)
    check_copyable(adapter)
    student = copy.deepcopy(teacher)
    if adapter.shares_layers:
        setattr(student.config, adapter.layers_key, len(layers))
    else:
        keep_layers(student, layers)
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
