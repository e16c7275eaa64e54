"""Stage ``finetune``: a head of the data's labels, trained with everything below it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError, RecipeError, StageError
from compressor.core.task import Task
from compressor.data.batches import encode_split
from compressor.evaluation import evaluate_model
from compressor.families.heads import find_task
from compressor.models import load_compressed, load_config, save_checkpoint, unique_parameters
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.loop import train
from compressor.train.objective import Classification
from compressor.train.optimizer import freeze_word_embeddings
from compressor.train.runtime import reproducible
from compressor.train.settings import TrainSettings

_PROBLEM_TYPES: dict[Task, str] = {
    "text-classification": "single_label_classification",
    "multi-label-classification": "multi_label_classification",
    "regression": "regression",
}
"""What ``config.json`` calls the tasks that are trained here."""


class FinetuneConfig(TrainSettings):
    """Settings of ``finetune``; the defaults suit a small encoder such as MiniLM."""


@register
class Finetune(Stage[FinetuneConfig]):
    """Trains the current checkpoint on the labelled data: one label a text, several, or a number."""

    name: ClassVar[str] = "finetune"
    config_type: ClassVar[type[StageConfig]] = FinetuneConfig
    produces: ClassVar[Produces] = "checkpoint"
    trains: ClassVar[bool] = True
    makes_reference: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "accelerate")

    def requires(self, context: Context) -> None:
        """Checks that a head of logits is what the data wants and the current checkpoint may get.

        Raises:
            RecipeError: the recipe's task is none that is trained here.
            ModelError: the checkpoint is no supported model, or has a trained head of another kind.
        """
        load_config(context.current)
        check_trainable(context.data.task, self.name)
        if (found := _head(context.current)) in ("token-classification", "question-answering"):
            raise ModelError(
                f"{context.current.path} has a trained {found} head, which finetune would throw away",
                remedy="start from the encoder it was trained from, or take the finetune stage out",
            )

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Trains and saves; returns curves, accuracies and the parameter count."""
        config = self.config
        seed = config.seed_or(context.seed)
        names = context.data.label_names
        with reproducible(seed=seed, threads=context.threads):
            task = context.data.task
            model = load_compressed(context.current.path, num_labels=len(names))
            set_labels(model, names, task)
            if config.freeze_embeddings:
                freeze_word_embeddings(model)
            splits = {
                name: encode_split(context.current, split, max_tokens=config.max_tokens, folder=context.scratch)
                for name, split in context.data.splits.items()
            }
            curves = train(
                Classification(model, task),
                splits["train"],
                config,
                seed=seed,
                scratch=context.scratch,
                progress=context.progress,
            )
            accuracy = {
                name: evaluate_model(model, splits[name], task=task).model_dump() for name in ("validation", "test")
            }
        save_checkpoint(model, context.current.path, output)
        write_history(output, context.current, {"stage": self.name, "epochs": config.epochs, "lr": config.lr})
        return {
            "curves": curves,
            "evaluation": accuracy,
            "parameters": unique_parameters(model),
            "truncated_training_sentences": splits["train"].truncated,
        }

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model loads, is finite and has the data's labels in the data's order."""
        check_saved(output)
        expected = context.data.label_names
        if (found := Checkpoint.open(output).labels) != expected:
            raise StageError(f"{output} has the labels {found}; expected {expected}", remedy="report this stage")


def check_trainable(task: Task, stage: str, tasks: tuple[Task, ...] = tuple(_PROBLEM_TYPES)) -> None:
    """Raises RecipeError where a training stage does not know how to teach a task."""
    if task not in tasks:
        raise RecipeError(
            f"the stage {stage} does not train {task}; expected {', '.join(tasks)}",
            remedy="start from a model that is trained for the task: quantize, export and benchmark take it as it is",
        )


def _head(checkpoint: Checkpoint) -> Task | None:
    try:
        return find_task(checkpoint)
    except ModelError:
        return None  # a head for pretraining, which makes way


def set_labels(model: nn.Module, names: tuple[str, ...], task: Task = "text-classification") -> None:
    """Writes label names, in the order of its logits, and the kind of labels into a model's config."""
    config: Any = model.config
    config.problem_type = _PROBLEM_TYPES[task]
    config.id2label = dict(enumerate(names))
    config.label2id = {name: index for index, name in enumerate(names)}


def check_saved(output: Path) -> nn.Module:
    """Loads a saved checkpoint and proves that its weights are finite.

    Raises:
        StageError: a weight is NaN or infinite.
    """
    model = load_compressed(output)
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise StageError(f"{output}: {name} is not finite", remedy="lower lr, or set bf16: false")
    return model
