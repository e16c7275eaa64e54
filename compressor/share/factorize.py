"""Stage ``factorize``: the word embeddings become two thin matrices, V x E and E x H."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError
from compressor.families import adapter_for
from compressor.families.heads import find_task
from compressor.models import load_compressed, load_config, unique_parameters
from compressor.shapes import (
    Shape,
    build,
    forecast_shape,
    plain_shape,
    read_shape,
    replace_word_embedding,
    shape_of,
    with_shape,
)
from compressor.share.embedding import factorized
from compressor.share.files import check_computed, save_changed
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.runtime import torch_threads


class FactorizeConfig(StageConfig):
    """Settings of ``factorize``."""

    rank: int = Field(gt=0)
    """Columns of the table that is looked up, ALBERT's E."""


@register
class Factorize(Stage[FactorizeConfig]):
    """Replaces the current checkpoint's word embeddings by their nearest product of two thin matrices."""

    name: ClassVar[str] = "factorize"
    config_type: ClassVar[type[StageConfig]] = FactorizeConfig
    produces: ClassVar[Produces] = "checkpoint"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")

    def forecast(self, model_config: Any) -> Any:
        """Returns the config, which carries the new shape."""
        shape = forecast_shape(model_config) or plain_shape(model_config)
        self._saved(model_config, shape)
        return with_shape(model_config, shape.model_copy(update={"embedding_rank": self.config.rank}))

    def requires(self, context: Context) -> None:
        """Checks that two thin matrices are smaller than one.

        Raises:
            RecipeError: a rank that saves nothing, or embeddings that are factorised already.
        """
        config = load_config(context.current)
        self._saved(config, read_shape(context.current) or plain_shape(config))

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Factorises and saves; returns the arithmetic and the relative error of the table."""
        with torch_threads(context.threads):
            model = load_compressed(context.current, task=find_task(context.current))
            adapter = adapter_for(model.config)
            table = adapter.word_embedding(model)
            before, saved = unique_parameters(model), self._saved(model.config, shape_of(model))
            made, error = factorized(table, self.config.rank)
            replace_word_embedding(adapter, model, made)
        save_changed(model, context.current, output)
        rows, width = table.weight.shape
        facts = {
            "embeddings": {
                "before": f"{rows} x {width} = {rows * width}",
                "after": f"{rows} x {self.config.rank} + {self.config.rank} x {width} = "
                f"{self.config.rank * (rows + width)}",
                "relative_error": error,
            },
            "parameters": {"before": before, "after": unique_parameters(model), "predicted": before - saved},
            "bytes": {"before": context.current.size_bytes, "after": Checkpoint(output).size_bytes},
        }
        write_history(output, context.current, {"stage": self.name, "rank": self.config.rank, **facts})
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model reads back, is finite and has exactly the parameters that were computed."""
        check_computed(output)

    def _saved(self, config: Any, shape: Shape) -> int:
        """Returns how many parameters go."""
        with torch.device("meta"):
            table: nn.Embedding = adapter_for(config).word_embedding(build(config, None))
        rows, width = table.weight.shape
        rank = self.config.rank
        if shape.embedding_rank is not None:
            raise RecipeError(
                f"the word embeddings are factorised already, to {shape.embedding_rank} columns",
                remedy="take one factorize stage out",
            )
        if rank * (rows + width) >= rows * width or rank >= width:
            raise RecipeError(
                f"rank: {rank} makes {rank * (rows + width)} numbers of {rows} x {width} = {rows * width}",
                remedy=f"choose a rank below {min(width, rows * width // (rows + width))}",
            )
        return int(rows * width - rank * (rows + width))
