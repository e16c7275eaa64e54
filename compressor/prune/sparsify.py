"""Stage ``sparsify``: single weights become zero; the shapes stay, so nothing gets faster without a sparse kernel."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from compressor.core.checkpoint import WEIGHTS, Checkpoint
from compressor.core.errors import ModelError, StageError
from compressor.data.batches import EncodedSplit, encode_split, sorted_batches
from compressor.data.dataset import sampled
from compressor.distill.agreement import check_labels, check_teacher, named_teacher
from compressor.evaluation import evaluate_model, predict_logits
from compressor.families import adapter_for
from compressor.families.heads import find_task
from compressor.finetune import check_saved, check_trainable
from compressor.models import load_compressed, load_config, unique_parameters
from compressor.prune.masks import Granularity, check_pattern, fits, fixed_ratio, masks_for
from compressor.prune.movement import LearntMasks, MovementSettings, TaughtClassification
from compressor.share.files import save_changed
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.loop import train
from compressor.train.objective import Classification
from compressor.train.optimizer import freeze_word_embeddings
from compressor.train.runtime import reproducible

_CHUNK = 1 << 24
_MAX_TOKENS = 128

Modules = dict[str, nn.Linear]
Masks = dict[str, torch.Tensor]


class SparsifyConfig(StageConfig):
    """Settings of ``sparsify``."""

    ratio: float | None = Field(default=None, gt=0, lt=1)
    """Share of zeros among the encoder's matrix weights; an N:M pattern has its own."""
    method: Literal["magnitude", "movement"] = "magnitude"
    """``magnitude`` of the weights as they are, or ``movement``: masks learnt in training, see ``train``."""
    pattern: str = "unstructured"
    """``unstructured``; ``2:4``, two weights kept of every four in a row (what NVIDIA's sparse tensor cores read); or
    ``4x1``, blocks of so many rows and columns."""
    by: Granularity = "global"
    """One ranking over all matrices, or the same share in each ``matrix``."""
    activations: bool = False
    """Weigh each weight by the norm of the input that it multiplies (Wanda, Sun et al. 2024), ranked in each matrix."""
    sentences: int = Field(default=128, gt=0)
    """Training sentences on which inputs are observed."""
    train: MovementSettings | None = None
    """How ``movement`` trains weights and masks; the defaults where nothing is said."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.method == "movement" and self.activations:
            raise ValueError("'activations' weighs magnitudes: leave it out with 'method: movement'")
        if self.activations and self.by == "global" and "by" in self.model_fields_set:
            raise ValueError("'activations' ranks in each matrix: leave 'by' out")
        if self.method != "movement" and self.train is not None:
            raise ValueError("'train' belongs to 'method: movement'")
        check_pattern(self.pattern)
        if (self.ratio is None) == (fixed_ratio(self.pattern) is None):
            raise ValueError("give 'ratio' for unstructured and block patterns; N:M has its own")
        return self


@register
class Sparsify(Stage[SparsifyConfig]):
    """Sets the least important weights of the encoder's linear modules to zero, or learns which in training."""

    name: ClassVar[str] = "sparsify"
    config_type: ClassVar[type[StageConfig]] = SparsifyConfig
    produces: ClassVar[Produces] = "checkpoint"
    trains: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "accelerate")

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Raises RecipeError where ``train`` names a teacher that is no earlier stage."""
        check_teacher(self._train.teacher, earlier)

    def requires(self, context: Context) -> None:
        """Checks the checkpoint, and what ``movement`` trains on, before any work.

        Raises:
            ModelError: no supported model; for ``movement``, a model or teacher without the data's labels.
            RecipeError: an unknown teacher stage, or a task that is not trained here.
        """
        load_config(context.current)
        if self.config.method == "movement":
            check_trainable(context.data.task, f"{self.name} (method: movement)")
            check_labels(context.current, context.data.label_names)
            if (teacher := named_teacher(self._train.teacher, context)) is not None:
                check_trainable(context.data.task, f"{self.name} (with a teacher)", ("text-classification",))
                check_labels(teacher, context.data.label_names)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Sets weights to zero and saves; returns what became smaller and what did not."""
        settings = self.config
        with reproducible(seed=self._seed(context), threads=context.threads):
            model = load_compressed(context.current, task=find_task(context.current))
            modules = encoder_matrices(model)
            if not any(fits(module.weight.shape, settings.pattern) for module in modules.values()):
                raise ModelError(
                    f"no matrix of {context.current.path} can be divided by the pattern {settings.pattern}",
                    remedy="choose another pattern",
                )
            learn = self._learn if settings.method == "movement" else self._rank
            masks, learnt = learn(context, model, modules)
        save_changed(model, context.current, output)
        weights = sum(mask.numel() for mask in masks.values())
        zeros = sum(int((module.weight == 0).sum()) for module in modules.values())
        facts = {
            "sparsity": {
                "method": settings.method,
                "pattern": settings.pattern,
                "encoder_weights": weights,
                "zeros": zeros,
                "share": zeros / weights,
                "whole_matrices": sorted(name for name, mask in masks.items() if bool(mask.all())),
            },
            "parameters": {"before": unique_parameters(model), "after": unique_parameters(model)},
            "bytes": {
                "file_before": context.current.size_bytes,
                "file_after": Checkpoint(output).size_bytes,
                "compressed_before": sum(map(_deflated, sorted(context.current.path.glob("*.safetensors")))),
                "compressed_after": _deflated(output / WEIGHTS),
            },
            **learnt,
            "faster": "nothing: shapes are the same, and no exported format's kernels skip zeros by themselves",
        }
        told = {name: value for name, value in facts.items() if name != "curves"}
        write_history(output, context.current, {"stage": self.name, **told})
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model reads back with as many zeros as were made."""
        found = sum(int((it.weight == 0).sum()) for it in encoder_matrices(check_saved(output)).values())
        expected = Checkpoint.open(output).compression["history"][-1]["sparsity"]["zeros"]
        if found != expected:
            raise StageError(f"{output} has {found} zeros; expected {expected}", remedy="report this stage")

    def _rank(self, context: Context, model: nn.Module, modules: Modules) -> tuple[Masks, dict[str, Any]]:
        """Masks the weights that are smallest now; returns the masks and no further facts."""
        settings = self.config
        scores = {name: module.weight.detach().double().square() for name, module in modules.items()}
        if settings.activations:
            split = sampled(context.data.train, settings.sentences, seed=context.seed)
            norms = input_norms(model, modules, encode_split(context.current, split, max_tokens=_MAX_TOKENS))
            scores = {name: value * norms[name].square() for name, value in scores.items()}
        masks = masks_for(
            scores, pattern=settings.pattern, ratio=settings.ratio or 0.0,
            granularity="matrix" if settings.activations else settings.by,
        )  # fmt: skip
        with torch.no_grad():
            for name, module in modules.items():
                module.weight.mul_(masks[name])
        return masks, {}

    def _learn(self, context: Context, model: nn.Module, modules: Modules) -> tuple[Masks, dict[str, Any]]:
        """Trains weights and masks; returns the masks, the curves and the scores before and after."""
        settings, task = self._train, context.data.task
        if settings.freeze_embeddings:
            freeze_word_embeddings(model)
        splits = {
            name: encode_split(context.current, split, max_tokens=settings.max_tokens)
            for name, split in context.data.splits.items()
        }
        before = {name: evaluate_model(model, splits[name], task=task) for name in ("validation", "test")}
        objective = Classification(model, task)
        if (teacher := named_teacher(self._train.teacher, context)) is not None:
            data = encode_split(teacher, context.data.train, max_tokens=settings.max_tokens)
            objective = TaughtClassification(
                model, predict_logits(load_compressed(teacher), data), weight=settings.teacher_weight,
                temperature=settings.temperature,
            )  # fmt: skip
        learnt = LearntMasks(
            modules, pattern=self.config.pattern, ratio=self.config.ratio or 0.0, granularity=self.config.by,
            settings=settings,
        )  # fmt: skip
        curves = train(
            objective, splits["train"], settings, seed=self._seed(context), scratch=context.scratch,
            progress=context.progress, before_step=learnt.before_step,
        )  # fmt: skip
        masks = learnt.settle()
        after = {name: evaluate_model(model, splits[name], task=task) for name in before}
        evaluation = {
            name: {split: it.model_dump() for split, it in found.items()}
            for name, found in (("before", before), ("after", after))
        }
        return masks, {"curves": curves, "evaluation": evaluation}

    @property
    def _train(self) -> MovementSettings:
        return self.config.train or MovementSettings()

    def _seed(self, context: Context) -> int:
        return self._train.seed_or(context.seed)


def encoder_matrices(model: nn.Module) -> Modules:
    """Returns the linear modules inside the stored encoder layers, by path."""
    adapter = adapter_for(model.config)
    return {
        f"{path}.{name}": module
        for path, layer in adapter.stored_layers(model).items()
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    }


def input_norms(model: nn.Module, modules: Modules, data: EncodedSplit) -> dict[str, torch.Tensor]:
    """Returns the norm of each module's inputs over all tokens, shape (columns,); one streaming pass."""
    powers = {name: torch.zeros(module.in_features, dtype=torch.float64) for name, module in modules.items()}

    def watch(name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        def see(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            powers[name] += inputs[0].detach().double().square().flatten(0, -2).sum(dim=0)

        return see

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in modules.items()]
    try:
        with torch.inference_mode():
            for rows in sorted_batches(data.lengths, 1):
                model(**data.inputs(rows))
    finally:
        for handle in handles:
            handle.remove()
    return {name: power.sqrt().float() for name, power in powers.items()}


def _deflated(file: Path) -> int:
    """Returns the bytes of a file as an app store would deliver it (deflate, as in a zip or an APK)."""
    packer = zlib.compressobj(6)
    total = 0
    with file.open("rb") as stream:
        while part := stream.read(_CHUNK):
            total += len(packer.compress(part))
    return total + len(packer.flush())
