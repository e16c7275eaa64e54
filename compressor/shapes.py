"""What a Hugging Face config cannot say of an encoder: uneven layers, shared layers, factorised embeddings.

:func:`shape_of` reads it off a model, ``compression.json`` keeps it, and :func:`apply_shape` gives it to a model that
was built from the config alone.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from pydantic import Field, ValidationError
from torch import nn

from compressor.core.checkpoint import COMPRESSION, Checkpoint
from compressor.core.errors import ModelError
from compressor.core.folders import write_json
from compressor.core.objection import objection
from compressor.core.schema import Record
from compressor.families import FamilyAdapter, adapter_for
from compressor.families.adapter import linear
from compressor.share.embedding import FactorizedEmbedding

CLASSIFIER = "AutoModelForSequenceClassification"
SHAPE = "shape"
"""Key of ``compression.json``."""
_FORECAST = "compression_shape"
"""Attribute that carries the shape of a model that does not exist yet with its config; never saved."""


class LayerShape(Record):
    """One stored layer."""

    heads: int = Field(ge=1)
    ffn: tuple[int, ...]
    """Inner widths of its feed-forward networks; one, but for MobileBERT."""


class Shape(Record):
    """The encoder of one model."""

    head_size: int = Field(ge=1)
    layers: tuple[LayerShape, ...] = Field(min_length=1)
    """Stored layers."""
    groups: tuple[int, ...] | None = None
    """Which stored layer each depth applies; None: as the family does by itself."""
    embedding_rank: int | None = Field(default=None, ge=1)
    """Columns of a factorised word embedding; None: it is one matrix."""

    @property
    def applied(self) -> tuple[LayerShape, ...]:
        """The layers in the order in which they are applied (a sharing family's repetitions are not in here)."""
        return self.layers if self.groups is None else tuple(self.layers[index] for index in self.groups)


def shape_of(model: nn.Module) -> Shape:
    """Returns the shape that a model has, whatever its config says."""
    adapter = adapter_for(model.config)
    stored = adapter.stored_layers(model)
    head_size = int(_attention(adapter, next(iter(stored.values()))).attention_head_size)
    groups = None
    if not adapter.shares_layers:
        places = {id(layer): index for index, layer in enumerate(stored.values())}
        applied = tuple(places[id(layer)] for layer in adapter.encoder_layers(model))
        groups = applied if len(stored) < len(applied) else None
    table = adapter.word_embedding(model)
    return Shape(
        head_size=head_size,
        layers=tuple(
            LayerShape(
                heads=linear(layer, adapter.layer.query).out_features // head_size,
                ffn=tuple(wide.out_features for wide, _ in adapter.feed_forwards(layer)),
            )
            for layer in stored.values()
        ),
        groups=groups,
        embedding_rank=table.embedding_dim if isinstance(table, FactorizedEmbedding) else None,
    )


def apply_shape(model: nn.Module, config: Any, shape: Shape) -> None:
    """Gives a model that was built from ``config`` another shape, in place; resized weights hold no values.

    Raises:
        ModelError: a shape that does not fit the config (another number of layers, for example).
    """
    adapter = adapter_for(config)
    stored = [*adapter.stored_layers(model).values()]
    if shape.groups is not None:
        if (
            adapter.shares_layers
            or len(shape.groups) != len(stored)
            or set(shape.groups) != {*range(len(shape.layers))}
        ):
            raise _misfit(f"{len(shape.groups)} layers in groups", f"{len(stored)} layers")
        firsts = [shape.groups.index(index) for index in range(len(shape.layers))]
        stored = [stored[first] for first in firsts]
        owner, _, name = adapter.layers.rpartition(".")
        setattr(model.get_submodule(owner), name, nn.ModuleList(stored[index] for index in shape.groups))
    if len(stored) != len(shape.layers):
        raise _misfit(f"{len(shape.layers)} layers", f"{len(stored)} layers")
    for layer, wanted in zip(stored, shape.layers, strict=True):
        set_heads(adapter, layer, heads=wanted.heads, head_size=shape.head_size)
        networks = adapter.feed_forwards(layer)
        if len(networks) != len(wanted.ffn):
            raise _misfit(f"{len(wanted.ffn)} feed-forward networks a layer", str(len(networks)))
        for (wide, narrow), width in zip(networks, wanted.ffn, strict=True):
            resize(wide, rows=width)
            resize(narrow, columns=width)
    if shape.embedding_rank is not None:
        table = adapter.word_embedding(model)
        made = FactorizedEmbedding(
            table.num_embeddings, shape.embedding_rank, table.embedding_dim, table.padding_idx,
            device=table.weight.device, dtype=table.weight.dtype,
        )  # fmt: skip
        replace_word_embedding(adapter, model, made)


def set_heads(adapter: FamilyAdapter, layer: nn.Module, *, heads: int, head_size: int) -> None:
    """Sets number and size of a layer's attention heads; projections that change their size hold no values."""
    width = heads * head_size
    for projection in adapter.projections(layer):
        resize(projection, rows=width)
    resize(linear(layer, adapter.layer.attention_output), columns=width)
    state_heads(adapter, layer, heads=heads, head_size=head_size)


def state_heads(adapter: FamilyAdapter, layer: nn.Module, *, heads: int, head_size: int) -> None:
    """Tells the attention module how its projections are cut into heads."""
    attention = _attention(adapter, layer)
    values = {
        "num_attention_heads": heads, "n_heads": heads, "attention_head_size": head_size,
        "all_head_size": heads * head_size, "dim": heads * head_size, "scaling": head_size**-0.5,
    }  # fmt: skip
    for name, value in values.items():
        if hasattr(attention, name):
            setattr(attention, name, value)


def resize(module: nn.Linear, *, rows: int | None = None, columns: int | None = None) -> None:
    """Gives a linear module another size, in place; where it changes, new weights hold no values."""
    rows, columns = rows or module.out_features, columns or module.in_features
    if (rows, columns) == (module.out_features, module.in_features):
        return
    module.out_features, module.in_features = rows, columns
    module.weight = nn.Parameter(module.weight.new_empty(rows, columns))
    if module.bias is not None and module.bias.numel() != rows:
        module.bias = nn.Parameter(module.bias.new_empty(rows))


def replace_word_embedding(adapter: FamilyAdapter, model: nn.Module, table: nn.Embedding) -> None:
    """Puts ``table`` in place of the model's word embeddings."""
    owner, _, name = adapter.word_embeddings.rpartition(".")
    setattr(model.get_submodule(owner), name, table)


def build(config: Any, shape: Shape | None, *, auto_class: str = CLASSIFIER) -> nn.Module:
    """Returns a model of this config and shape on torch's default device, with weights that still have to be filled."""
    import transformers

    model: nn.Module = getattr(transformers, auto_class).from_config(config)
    if shape is not None:
        apply_shape(model, config, shape)
    return model


def plain_shape(config: Any) -> Shape:
    """Returns the shape that transformers builds from a config; takes no memory for weights."""
    with torch.device("meta"):
        return shape_of(build(config, None))


def parameters_of(config: Any, shape: Shape | None = None, auto_class: str = CLASSIFIER) -> int:
    """Returns the parameters of a model of this config and shape, each shared weight once, without making any.

    Args:
        config: a transformers config, perhaps one of :func:`with_shape`.
        shape: default the one that the config carries, else what the config says.
        auto_class: the transformers class of the model with its head.
    """
    with torch.device("meta"):
        model = build(config, shape or forecast_shape(config), auto_class=auto_class)
    return sum(parameter.numel() for parameter in model.parameters())


def with_shape(config: Any, shape: Shape | None) -> Any:
    """Returns a copy of a config that carries a shape, for forecasts."""
    made = copy.deepcopy(config)
    setattr(made, _FORECAST, None if shape is None else shape.model_dump(mode="json"))
    return made


def forecast_shape(config: Any) -> Shape | None:
    """Returns the shape that :func:`with_shape` gave to a config."""
    carried = getattr(config, _FORECAST, None)
    return None if carried is None else Shape.model_validate(carried)


def read_shape(checkpoint: Checkpoint) -> Shape | None:
    """Returns the shape in a checkpoint's ``compression.json``; None where its config says all.

    Raises:
        ModelError: a shape that is not one, or a vocabulary map that is not the config's.
    """
    kept = (checkpoint.compression.get("vocabulary") or {}).get("kept")
    rows = checkpoint.config.get("vocab_size")
    if kept is not None and len(kept) != rows:
        raise ModelError(
            f"{checkpoint.path / COMPRESSION} maps a vocabulary of {len(kept)} pieces; config.json says {rows}",
            remedy="restore the file that was saved with these weights",
        )
    found = checkpoint.compression.get(SHAPE)
    if found is None:
        return None
    try:
        return Shape.model_validate(found)
    except ValidationError as error:
        raise ModelError(
            objection(error, found).at(f"{checkpoint.path / COMPRESSION} holds no readable shape", SHAPE),
            remedy="restore the file that was saved with these weights",
        ) from error


def write_shape(folder: Path, shape: Shape | None) -> None:
    """Writes the shape into ``compression.json`` of a folder (None: takes it out), whatever else the file says."""
    file = folder / COMPRESSION
    record = dict(Checkpoint(folder).compression) or {"schema_version": 1}
    record.pop(SHAPE, None)
    if shape is not None:
        record[SHAPE] = shape.model_dump(mode="json")
    elif not file.is_file():
        return
    write_json(file, record)


def _attention(adapter: FamilyAdapter, layer: nn.Module) -> Any:
    """Returns the module that cuts projections into heads: the one that holds the query."""
    return layer.get_submodule(adapter.layer.query.rpartition(".")[0])


def _misfit(found: str, expected: str) -> ModelError:
    return ModelError(
        f"{COMPRESSION} states {found}; config.json makes {expected}",
        remedy="restore the files that were saved together",
    )
