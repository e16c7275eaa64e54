"""Stage ``prune``: layers, attention heads, feed-forward neurons and hidden channels go, by their importance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import RecipeError
from compressor.core.folders import write_json
from compressor.core.latency import LatencyModel
from compressor.data.batches import encode_split
from compressor.data.dataset import sampled
from compressor.families import adapter_for
from compressor.families.heads import AUTO_CLASSES, find_task
from compressor.finetune import check_trainable
from compressor.models import load_compressed, load_config, unique_parameters
from compressor.prune.allocation import Scores, no_scores
from compressor.prune.channels import channel_importance, keep_channels
from compressor.prune.config import PruneConfig
from compressor.prune.costs import Costs
from compressor.prune.importance import IMPORTANCE, Importance, cached_importance
from compressor.prune.plan import PrunePlan, kept_depths, plan_pruning, settle, shallower
from compressor.prune.surgery import keep_heads, keep_layers, keep_neurons, state_widths
from compressor.shapes import CLASSIFIER, forecast_shape, plain_shape, read_shape, shape_of, with_shape
from compressor.share.files import check_computed, save_changed
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.runtime import reproducible

_MAX_TOKENS = 128


@register
class Prune(Stage[PruneConfig]):
    """Cuts parts out of the current checkpoint; recovery is a distill stage with the unpruned one as teacher."""

    name: ClassVar[str] = "prune"
    config_type: ClassVar[type[StageConfig]] = PruneConfig
    produces: ClassVar[Produces] = "checkpoint"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")

    def files(self) -> tuple[Path, ...]:
        """Returns the latency model's file where one is named."""
        return () if self.config.latency_file is None else (self.config.latency_file,)

    def forecast(self, model_config: Any) -> Any:
        """Returns the pruned model's config, which carries its shape; exact but for widths that a device decides.

        A latency model that is yet to be measured is not waited for: heads and neurons are then as before.
        """
        shape = forecast_shape(model_config) or plain_shape(model_config)
        kept = kept_depths(model_config, self.config.drop_layers, ())
        config, shape = shallower(model_config, shape, kept)
        file = self.config.latency_file
        if self.config.latency is not None and file is None:
            return with_shape(*settle(config, shape))
        plan = plan_pruning(
            config, shape, *no_scores(shape), self.config, multiple=self.config.multiple_of or 1,
            latency=None if file is None else LatencyModel.load(file),
        )  # fmt: skip
        return with_shape(*settle(plan.config, plan.shape))

    def requires(self, context: Context) -> None:
        """Checks that what is asked for can be removed, before any work.

        Raises:
            RecipeError: a layer would be left without heads or neurons, layers that are not there, a hidden size that
                does not fit, or an importance that this task cannot give.
            UsageError: an unknown device, or no latency model where one is named.
        """
        if self.config.cuts and self.config.importance == "taylor":
            check_trainable(context.data.task, f"{self.name} (importance: taylor)")
        config = load_config(context.current)
        shape = read_shape(context.current) or plain_shape(config)
        if self.config.hidden is not None and find_task(context.current) == "sentence-embedding":
            raise RecipeError(
                "the hidden size of a sentence embedding is its answer's width", remedy="leave 'hidden' out"
            )
        config, shape = shallower(config, shape, kept_depths(config, self.config.drop_layers, ()))
        multiple, file = self._multiple(context), self.config.latency_file
        if self.config.latency is not None and file is None:
            context.device(self.config.latency)
            return
        latency = None if file is None else LatencyModel.load(file)
        plan_pruning(config, shape, *no_scores(shape), self.config, multiple=multiple, latency=latency)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Prunes and saves; returns the parameter arithmetic and what each layer kept."""
        settings = self.config
        task = find_task(context.current)
        latency = self._latency(context)
        with reproducible(seed=context.seed, threads=context.threads):
            model = load_compressed(context.current, task=task)
            before = unique_parameters(model)
            found = self._importance(context, model)
            kept = kept_depths(model.config, settings.drop_layers, found.depths if found is not None else ())
            scores = self._scores(model, found, kept)
            predicted = unique_parameters(model)
            # A sentence embedding's own class has no head, and nothing that goes reaches into one.
            auto_class = CLASSIFIER if task == "sentence-embedding" else AUTO_CLASSES[task]
            plan = plan_pruning(
                model.config,
                shape_of(model),
                *scores,
                settings,
                multiple=self._multiple(context),
                auto_class=auto_class,
                latency=latency,
            )
            predicted -= plan.saved
            cut(model, plan)
            if settings.hidden is not None:
                order = np.argsort(-channel_importance(model, shape_of(model)).numpy(), kind="stable")
                channels = sorted(int(index) for index in order[: settings.hidden])
                model = keep_channels(model, channels, auto_class=AUTO_CLASSES[task])
            state_widths(model)
        save_changed(model, context.current, output)
        if found is not None:
            write_json(output / IMPORTANCE, json.loads(found.model_dump_json()))
        facts: dict[str, Any] = {
            "parameters": {"before": before, "after": unique_parameters(model), "predicted": predicted},
            "layers_kept": list(kept),
            "heads": [layer.heads for layer in plan.shape.layers],
            "ffn": [list(layer.ffn) for layer in plan.shape.layers],
            "hidden": adapter_for(model.config).hidden_size(model.config),
            "removed": {"heads": plan.ratios[0], "ffn": plan.ratios[1]},
            "bytes": {"before": context.current.size_bytes, "after": Checkpoint(output).size_bytes},
        }
        if latency is not None:
            predicted_ms = Costs(plan.config, shape_of(model)).milliseconds(shape_of(model), latency)
            facts["latency"] = {
                "device": latency.device, "format": latency.format, "precision": latency.precision,
                "threads": latency.threads, "tokens": latency.tokens, "predicted_ms": predicted_ms,
            }  # fmt: skip
        write_history(output, context.current, {"stage": self.name, "importance": settings.importance, **facts})
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model reads back, is finite and has exactly the parameters that were computed."""
        check_computed(output)

    def _multiple(self, context: Context) -> int:
        if self.config.multiple_of is not None:
            return self.config.multiple_of
        named = None if self.config.device is None else context.device(self.config.device).widths_multiple_of
        return named or 1

    def _latency(self, context: Context) -> LatencyModel | None:
        if self.config.latency is None or self.config.budget is None:
            return None
        if (file := self.config.latency_file) is not None:
            return LatencyModel.load(file)
        return context.latency_model(self.config.latency, self.config.budget.tokens)

    def _importance(self, context: Context, model: nn.Module) -> Importance | None:
        by_order = isinstance(self.config.drop_layers, tuple) or adapter_for(model.config).shares_layers
        if not self.config.cuts and (by_order or not self.config.drop_layers):
            return None
        split = sampled(context.data.train, self.config.sentences, seed=context.seed)
        data = encode_split(context.current, split, max_tokens=_MAX_TOKENS)
        return cached_importance(
            model, data, context.workdir / "importance", context.current.hash, method=self._method,
            task=context.data.task, depths=not by_order and bool(self.config.drop_layers), progress=context.progress,
        )  # fmt: skip

    @property
    def _method(self) -> Any:
        # Layers alone are judged by how far they turn their input, for which no labels are needed.
        return self.config.importance if self.config.cuts else "magnitude"

    def _scores(self, model: nn.Module, found: Importance | None, kept: tuple[int, ...]) -> tuple[Scores, Scores]:
        """Drops layers of the model; returns importances of what the remaining stored layers hold."""
        adapter = adapter_for(model.config)
        shape = shape_of(model)
        heads, neurons = no_scores(shape)
        if found is not None:
            heads, neurons = [np.asarray(it) for it in found.heads], [np.asarray(it) for it in found.ffn]
        networks = iter(neurons)
        by_layer = {
            id(layer): (scores, [next(networks) for _ in stored.ffn])
            for layer, stored, scores in zip(adapter.stored_layers(model).values(), shape.layers, heads, strict=True)
        }
        if len(kept) < adapter.num_layers(model.config):
            keep_layers(model, kept)
        left = [by_layer[id(layer)] for layer in adapter.stored_layers(model).values()]
        return [scores for scores, _ in left], [scores for _, parts in left for scores in parts]


def cut(model: nn.Module, plan: PrunePlan) -> None:
    """Takes out of a model, in place, the heads and neurons that a plan does not keep."""
    adapter = adapter_for(model.config)
    allocation = plan.allocation
    layers = adapter.stored_layers(model).values()
    for layer, heads, networks in zip(layers, allocation.heads, allocation.ffn, strict=True):
        keep_heads(adapter, layer, heads, head_size=plan.shape.head_size)
        for (wide, narrow), neurons in zip(adapter.feed_forwards(layer), networks, strict=True):
            keep_neurons(wide, narrow, neurons)
