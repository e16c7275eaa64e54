"""A student cut out of its teacher in depth and in width: chosen layers, and in them the most important dimensions."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field
from torch import nn

from compressor.core.errors import ModelError, RecipeError
from compressor.data.batches import EncodedSplit
from compressor.distill.layer_map import LayerMap, resolve_map
from compressor.distill.students.base import StudentSettings
from compressor.distill.students.copied import copy_layers
from compressor.families import FamilyAdapter, adapter_for
from compressor.families.adapter import linear
from compressor.prune.channels import channel_importance, keep_channels, narrower_config
from compressor.prune.importance import importance_of
from compressor.prune.plan import settle, shallower
from compressor.prune.sizes import AttentionSizes, attention_sizes, channel_sizes
from compressor.prune.surgery import keep_columns, keep_neurons, keep_rows, state_widths
from compressor.shapes import LayerShape, Shape, forecast_shape, plain_shape, shape_of, state_heads, with_shape


class SlicedStudent(StudentSettings):
    """Layers, hidden dimensions, heads, dimensions within heads and neurons are the teacher's own, the best of them.

    The dimensions of the residual stream are the same in every tensor that reads or writes it: embeddings, LayerNorms,
    all layers, pooler and classifier. Within a head, query and key keep the dimensions that carry most of the attention
    scores, value and output those that carry most of the head's answer. The result is a plain model of the family.
    """

    init: Literal["slice"]
    layers: int = Field(gt=0)
    map: LayerMap = "uniform"
    """Which teacher layers are kept."""
    hidden_size: int = Field(gt=0)
    ffn: int | None = Field(default=None, gt=0)
    """Feed-forward width; default as wide, against the hidden size, as the teacher's."""
    heads: int | None = Field(default=None, gt=0)
    """Attention heads a layer; default as many as the teacher has. A head has ``hidden_size / heads`` dimensions."""
    importance: Literal["magnitude", "activation"] = "magnitude"
    """What is important: large weights, or large values on training sentences."""
    sentences: int = Field(default=256, gt=0)
    """Training sentences that ``activation`` looks at."""

    @property
    def sample(self) -> int:
        """How many training sentences decide what is kept."""
        return self.sentences if self.importance == "activation" else 0

    def model_config_for(self, teacher_config: Any) -> Any:
        """Returns the teacher's config at the student's depth and widths.

        Raises:
            ModelError: a family whose heads do not share out the hidden size.
            RecipeError: a size above the teacher's, or a hidden size that the heads do not divide.
        """
        adapter = adapter_for(teacher_config)
        before = forecast_shape(teacher_config) or plain_shape(teacher_config)
        heads, ffn = self._sizes(adapter, teacher_config, before)
        config, shape = shallower(teacher_config, before, self.copied(teacher_config))
        setattr(config, adapter.heads_key, heads)
        if self.hidden_size < adapter.hidden_size(config):
            config = narrower_config(config, self.hidden_size)
        layers = tuple(LayerShape(heads=heads, ffn=(ffn,) * len(layer.ffn)) for layer in shape.layers)
        return with_shape(
            *settle(config, shape.model_copy(update={"layers": layers, "head_size": self.hidden_size // heads}))
        )

    def make(self, teacher: nn.Module, text: EncodedSplit | None = None) -> nn.Module:
        """Returns the student; see the base class."""
        config: Any = teacher.config
        adapter = adapter_for(config)
        heads, ffn = self._sizes(adapter, config, shape_of(teacher))
        student = copy_layers(teacher, self.copied(config))
        text = text if self.sample else None
        parts = importance_of(student, text, method=self.importance, task="text-classification", depths=False)
        attention = attention_sizes(student, text)
        channels = channel_importance(student, shape_of(student)) if text is None else channel_sizes(student, text)
        networks = iter(parts.ffn)
        for layer, scores, sizes in zip(adapter.stored_layers(student).values(), parts.heads, attention, strict=True):
            _slice_attention(adapter, layer, sizes, _best(torch.tensor(scores), heads), self.hidden_size // heads)
            for wide, narrow in adapter.feed_forwards(layer):
                keep_neurons(wide, narrow, _best(torch.tensor(next(networks)), ffn))
        setattr(student.config, adapter.heads_key, heads)
        state_widths(student)
        if self.hidden_size == adapter.hidden_size(config):
            return student
        return keep_channels(student, _best(channels, self.hidden_size))

    def copied(self, teacher_config: Any) -> tuple[int, ...]:
        """Returns the teacher layers that the student's are cut from."""
        depth = adapter_for(teacher_config).num_layers(teacher_config)
        return resolve_map(self.map, student_layers=self.layers, teacher_layers=depth)

    def _sizes(self, adapter: FamilyAdapter, config: Any, shape: Shape) -> tuple[int, int]:
        """Returns heads and feed-forward width, checked against the teacher's."""
        hidden, theirs = adapter.hidden_size(config), adapter.num_heads(config)
        if shape.head_size * theirs != hidden:
            raise ModelError(
                f"a {adapter.model_type} whose {theirs} heads of {shape.head_size} do not share out its {hidden} "
                "hidden dimensions cannot be sliced",
                remedy="use init: copy, or init: new with a config",
            )
        heads = self.heads or theirs
        ffn = self.ffn or adapter.intermediate_size(config) * self.hidden_size // hidden
        least_heads = min(layer.heads for layer in shape.layers)
        least_ffn = min(width for layer in shape.layers for width in layer.ffn)
        for key, found, most in (("hidden_size", self.hidden_size, hidden), ("heads", heads, least_heads),
                                 ("ffn", ffn, least_ffn)):  # fmt: skip
            if found > most:
                raise RecipeError(
                    f"student.{key}: {found} cannot be sliced from a teacher with {most}",
                    remedy=f"choose at most {most}, or use init: new",
                )
        if self.hidden_size % heads or self.hidden_size // heads > shape.head_size:
            nearest = max(1, min(self.hidden_size // heads, shape.head_size)) * heads
            raise RecipeError(
                f"hidden_size {self.hidden_size} in {heads} heads is no slice of heads of {shape.head_size} dimensions;"
                f" expected a multiple of {heads} up to {heads * shape.head_size}",
                remedy=f"choose hidden_size {nearest}, or other heads",
            )
        return heads, ffn


def _slice_attention(
    adapter: FamilyAdapter, layer: nn.Module, sizes: AttentionSizes, heads: list[int], head_size: int
) -> None:
    """Keeps the named heads of a layer and, within each, its ``head_size`` best dimensions."""
    old = sizes.head_size
    scores, values = (
        torch.tensor([head * old + place for head in heads for place in _best(size[head], head_size)])
        for size in (sizes.scores.reshape(-1, old), sizes.values.reshape(-1, old))
    )
    value = linear(layer, adapter.layer.value)
    for projection in adapter.projections(layer):
        keep_rows(projection, values if projection is value else scores)
        if projection is not value:
            # A score is a product of two of these over the root of the head's size; it keeps its scale.
            with torch.no_grad():
                for parameter in projection.parameters():
                    parameter.mul_((head_size / old) ** 0.25)
    keep_columns(linear(layer, adapter.layer.attention_output), values)
    state_heads(adapter, layer, heads=len(heads), head_size=head_size)


def _best(scores: torch.Tensor, count: int) -> list[int]:
    """Returns the places of the ``count`` largest scores, ascending; equal ones in their order."""
    return sorted(torch.argsort(scores, descending=True, stable=True)[:count].tolist())
