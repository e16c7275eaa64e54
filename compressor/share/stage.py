"""Stage ``share``: several layers of the encoder get one set of weights, stored once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, StageError
from compressor.families import adapter_for
from compressor.families.heads import AUTO_CLASSES, find_task
from compressor.models import load_compressed, load_config, unique_parameters
from compressor.shapes import (
    CLASSIFIER,
    Shape,
    forecast_shape,
    parameters_of,
    plain_shape,
    read_shape,
    shape_of,
    with_shape,
)
from compressor.share.albert import albert_config, to_albert
from compressor.share.files import check_computed, save_changed
from compressor.share.grouping import Groups, by_similarity, check_alike, contiguous, named
from compressor.share.layers import Init, share_layers
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.runtime import torch_threads

Lists = tuple[tuple[int, ...], ...]


class ShareConfig(StageConfig):
    """Settings of ``share``."""

    groups: Literal["all"] | Annotated[int, Field(gt=0)] | Lists = "all"
    """``all`` layers in one group, so many groups, or each group's layers by number."""
    by: Literal["depth", "similarity"] = "depth"
    """How so many groups are formed: runs of neighbours, or layers with similar weights."""
    init: Init = "mean"
    """A group's weights: the mean of its layers, or the ``best`` of them, which is nearest to all others."""
    as_albert: bool = False
    """Save a BERT as the ALBERT that computes the same, which transformers loads alone."""

    @model_validator(mode="after")
    def _count(self) -> Self:
        if self.by == "similarity" and not isinstance(self.groups, int):
            raise ValueError("'by: similarity' forms groups: say how many with 'groups'")
        return self


@register
class Share(Stage[ShareConfig]):
    """Shares layers of the current checkpoint; recovery is a distill stage with the unshared one as teacher."""

    name: ClassVar[str] = "share"
    config_type: ClassVar[type[StageConfig]] = ShareConfig
    produces: ClassVar[Produces] = "checkpoint"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "scipy")

    def forecast(self, model_config: Any) -> Any:
        """Returns the shared model's config, which carries its shape."""
        shape = forecast_shape(model_config) or plain_shape(model_config)
        groups = self._groups(model_config, shape)
        made, shape = grouped(model_config, shape, groups)
        return albert_config(made, shape) if self.config.as_albert else with_shape(made, shape)

    def requires(self, context: Context) -> None:
        """Checks that the layers can share, before any work.

        Raises:
            RecipeError: groups that do not fit, layers of different widths, or no ALBERT where one is asked for.
            ModelError: a model whose layers are shared already.
        """
        config = load_config(context.current)
        shape = read_shape(context.current) or plain_shape(config)
        made, shared = grouped(config, shape, self._groups(config, shape))
        if self.config.as_albert:
            albert_config(made, shared)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Shares and saves; returns the groups and the parameter arithmetic."""
        task = find_task(context.current)
        auto_class = CLASSIFIER if task == "sentence-embedding" else AUTO_CLASSES[task]
        with torch_threads(context.threads):
            model = load_compressed(context.current, task=task)
            before, shape, config = unique_parameters(model), shape_of(model), model.config
            groups = self._groups(config, shape, model)
            made, shared = grouped(config, shape, groups)
            predicted = before - parameters_of(config, shape, auto_class) + parameters_of(made, shared, auto_class)
            layers = share_layers(model, groups, init=self.config.init)
            if self.config.as_albert:
                target = albert_config(model.config, shape_of(model))
                predicted += parameters_of(target, None, auto_class) - parameters_of(made, shared, auto_class)
                model = to_albert(model, shape_of(model), auto_class=auto_class)
        save_changed(model, context.current, output)
        facts = {
            "groups": list(groups),
            "initialised_from": list(layers),
            "parameters": {"before": before, "after": unique_parameters(model), "predicted": predicted},
            "bytes": {"before": context.current.size_bytes, "after": Checkpoint(output).size_bytes},
        }
        write_history(output, context.current, {"stage": self.name, "init": self.config.init, **facts})
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model reads back, is finite, and stores each group's weights once."""
        found, saved = check_computed(output), Checkpoint.open(output)
        if saved.size_bytes > 4 * found * 1.1 + 100_000:
            raise StageError(
                f"{output} takes {saved.size_bytes} bytes for {found} parameters: a weight is stored more than once",
                remedy="report this stage",
            )

    def _groups(self, config: Any, shape: Shape, model: Any = None) -> Groups:
        """Returns each depth's group; without the model, groups by similarity are only counted."""
        adapter = adapter_for(config)
        wanted = self.config.groups
        if shape.groups is not None or (adapter.shares_layers and len(shape.layers) == 1):
            raise ModelError(
                f"the model's layers are shared already: {len(shape.layers)} stored", remedy="take the share stage out"
            )
        if adapter.shares_layers and getattr(config, "inner_group_num", 1) != 1:
            raise ModelError("groups of several inner layers cannot be shared further", remedy="take the stage out")
        depth = len(shape.layers)
        if wanted == "all" or isinstance(wanted, int):
            count = 1 if isinstance(wanted, str) else wanted
            groups = contiguous(depth, count)
            if self.config.by == "similarity" and model is not None:
                groups = by_similarity([*adapter.stored_layers(model).values()], count)
        else:
            groups = named(depth, wanted)
        check_alike(groups, shape.layers)
        return groups


def grouped(config: Any, shape: Shape, groups: Groups) -> tuple[Any, Shape]:
    """Returns config and shape of a model whose layers share weights so.

    Raises:
        ModelError: a family that shares in runs of one size only, and groups that are not such runs.
    """
    layers = tuple(shape.layers[groups.index(group)] for group in range(max(groups) + 1))
    made = copy.deepcopy(config)
    if adapter_for(config).shares_layers:
        if groups != contiguous(len(groups), len(layers)) or len(groups) % len(layers):
            raise ModelError(
                f"groups {list(groups)} are not runs of one size; expected such of this {config.model_type}",
                remedy="share by depth into a number of groups that divides its own",
            )
        made.num_hidden_groups = len(layers)
        return made, shape.model_copy(update={"layers": layers})
    shared = groups if len(layers) < len(groups) else None
    return made, shape.model_copy(update={"layers": layers, "groups": shared})
