"""Stage ``distill``: a student learns from a teacher of the same vocabulary and labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from compressor.augment.rows import augmentation_model, augmented_texts, with_variants
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import StageError
from compressor.data.batches import EncodedSplit, encode_split
from compressor.data.dataset import TextDataset, sampled
from compressor.distill.agreement import check_labels, check_teacher, named_teacher, same_lengths, same_vocabulary
from compressor.distill.config import DistillConfig
from compressor.distill.losses import needs_of
from compressor.distill.objective import Distillation
from compressor.distill.outputs import Shape, model_shape
from compressor.distill.progressive import check_separable, part_settings, plan_parts, train_progressively
from compressor.distill.teacher import TeacherOutputs, teacher_digest, teacher_folder
from compressor.evaluation import Evaluation, check_reference, evaluate_logits, evaluate_model
from compressor.families import adapter_for
from compressor.finetune import check_saved, check_trainable
from compressor.models import load_compressed, load_config, resolve, save_checkpoint, unique_parameters
from compressor.pretrain.encoders import load_masked_language_model
from compressor.pretrain.heads import check_head, masked_head, same_head
from compressor.pretrain.masking import Masks
from compressor.pretrain.objectives.mlm import MaskedTerm
from compressor.pretrain.pieces import Pieces
from compressor.processes import training_device
from compressor.shapes import forecast_shape, parameters_of, plain_shape, read_shape, shape_of, with_shape
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.loop import train, visited
from compressor.train.optimizer import freeze_word_embeddings
from compressor.train.runtime import reproducible
from compressor.train.weights import WeightAt


@register
class Distill(Stage[DistillConfig]):
    """Makes a student (or takes the current checkpoint) and trains it on the teacher's outputs."""

    name: ClassVar[str] = "distill"
    config_type: ClassVar[type[StageConfig]] = DistillConfig
    produces: ClassVar[Produces] = "checkpoint"
    trains: ClassVar[bool] = True
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers", "accelerate")

    def forecast(self, model_config: Any) -> Any:
        """Returns the student's config: the teacher's with fewer layers, or the current one unchanged.

        Raises:
            RecipeError: a loss or a layer map that does not fit the two; known here where the teacher is the model that
                comes in.
        """
        if self.config.student is None:
            return model_config
        student = self.config.student.model_config_for(model_config)
        if self.config.teacher is None:
            self._check_losses(student, model_shape(student), model_shape(model_config, forecast_shape(model_config)))
        return student

    def files(self) -> tuple[Path, ...]:
        """Returns the folder of the masked language model, where the recipe names one."""
        return () if self.config.augment is None else (Path(self.config.augment.model),)

    def check(self, teacher: Checkpoint, earlier: tuple[str, ...]) -> None:
        """Raises RecipeError where the named teacher is no earlier stage, ModelError where ``augment`` has no model."""
        check_teacher(self.config.teacher, earlier)
        if self.config.augment is not None and self.config.augment.model not in earlier:
            resolve(self.config.augment.model)

    def requires(self, context: Context) -> None:
        """Checks teacher, labels, vocabularies and layer maps before any work.

        Raises:
            RecipeError: an unknown teacher stage, a layer map that does not fit, or a task of several labels or none.
            ModelError: teacher and student that do not share vocabulary, or a teacher without the data's labels.
        """
        check_trainable(context.data.task, self.name, ("text-classification",))
        teacher = self._teacher(context)
        check_labels(teacher, context.data.label_names)
        teacher_shape = model_shape(load_config(teacher), read_shape(teacher))
        self._check_losses(self._student_config(context), self._student_shape(context), teacher_shape)
        if self.config.student is None:
            same_vocabulary(teacher, context.current)
        if self.config.augment is not None:
            load_masked_language_model(augmentation_model(self.config.augment, context))
        if self.config.mlm is not None:
            check_head(self._student_config(context))
            Pieces.load(context.current if self.config.student is None else teacher)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Distils and saves; returns curves, accuracies of both models and the parameter arithmetic."""
        config = self.config
        seed = config.seed_or(context.seed)
        source = self._teacher(context)
        parent = source if config.student is not None else context.current
        with reproducible(seed=seed, threads=context.threads):
            teacher = load_compressed(source.path)
            student = self._student(context, source, teacher, seed)
            teacher.to(training_device())
            limit = min(config.max_tokens, *(adapter_for(it.config).max_tokens(it.config) for it in (teacher, student)))
            data = self._data(context, seed=seed, max_tokens=limit)
            theirs = _encoded(data, source, teacher.config, max_tokens=limit, folder=context.scratch)
            splits = _encoded(data, parent, student.config, max_tokens=limit, folder=context.scratch)
            same_lengths(theirs["train"], splits["train"])
            folder, digest = teacher_folder(context.scratch), teacher_digest(source)
            before = {
                name: _evaluated(
                    TeacherOutputs(teacher, part, needed=np.arange(len(part)), folder=folder, digest=digest), part
                )
                for name, part in theirs.items()
                if name != "train"
            }
            check_reference(before["validation"], f"the teacher {source.path}")
            if config.freeze_embeddings:
                freeze_word_embeddings(student)
            teacher_shape = model_shape(teacher.config, shape_of(teacher))
            student_shape = model_shape(student.config, shape_of(student))
            _, needs = needs_of(config.losses, student_shape, teacher_shape)
            parts = plan_parts(config.losses, student_shape, teacher_shape) if config.progressive else ()
            targets = TeacherOutputs(
                teacher,
                theirs["train"],
                needed=_visited(splits["train"], config, len(parts), seed),
                states=needs.states,
                layers=needs.layers,
                width=teacher_shape.hidden_size,
                folder=folder,
                digest=digest,
                cache_mb=config.cache_mb,
                progress=context.progress,
            )
            shapes = (student_shape, teacher_shape)
            masked = self._masked(student, parent, splits["train"], seed)
            if parts:
                curves = train_progressively(
                    student, targets, parts, splits["train"], config,
                    shapes=shapes, seed=seed, scratch=context.scratch, progress=context.progress,
                )  # fmt: skip
            else:
                objective = Distillation(
                    student, targets, config.losses, student_shape=shapes[0], teacher_shape=shapes[1], masked=masked
                )
                curves = train(
                    objective, splits["train"], config, seed=seed, scratch=context.scratch, progress=context.progress
                )
            after = {name: evaluate_model(student, splits[name]) for name in before}
        counts = {"before": unique_parameters(teacher), "after": unique_parameters(student)}
        copied = [*config.student.copied(teacher.config)] if config.student is not None else None
        save_checkpoint(student, parent.path, output)
        if masked is not None:
            masked[0].head.save(output)
        write_history(
            output,
            parent,
            {
                "stage": self.name,
                "layers_copied": copied,
                "parameters": counts,
                "losses": sorted(curves.keys() - {"total"}),
            },
        )
        return {
            "curves": curves,
            "evaluation": {"teacher": _facts(before), "student": _facts(after)},
            "parameters": counts,
            "augmented_texts": len(data.train) - len(context.data.train),
            "layers_copied": copied,
            "teacher_hidden_states_cached": targets.caches_hidden,
            **({"progressive": [list(part.layers) for part in parts]} if parts else {}),
        }

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved student is finite and has exactly the layers, and so the parameters, it should have."""
        found = unique_parameters(check_saved(output))
        if self.config.student is None:
            expected = unique_parameters(load_compressed(context.current.path))
        else:
            expected = parameters_of(self._student_config(context))
        if found != expected:
            raise StageError(f"{output} has {found} parameters; expected {expected}", remedy="report this stage")

    def _data(self, context: Context, *, seed: int, max_tokens: int) -> TextDataset:
        """Returns the recipe's data, with variants of its training texts where they are asked for."""
        settings = self.config.augment
        if settings is None:
            return context.data
        variants = augmented_texts(settings, context, seed=seed, max_tokens=max_tokens)
        return replace(context.data, train=with_variants(context.data.train, variants))

    def _masked(
        self, student: nn.Module, parent: Checkpoint, data: EncodedSplit, seed: int
    ) -> tuple[MaskedTerm, WeightAt] | None:
        """Returns the masked-language-model loss and its weight, where there is to be one."""
        settings = self.config.mlm
        if settings is None:
            return None
        # The parent's head does not stand on a student of another family or width: that one begins with a new head.
        head, _ = masked_head(student, parent if same_head(student.config, load_config(parent)) else None)
        masks = Masks(pieces=Pieces.load(parent), settings=settings, seed=seed)
        return MaskedTerm(head, masks, data), settings.weight_at

    def _check_losses(self, student_config: Any, student: Shape, teacher: Shape) -> None:
        needs_of(self.config.losses, student, teacher)
        if self.config.progressive:
            plan_parts(self.config.losses, student, teacher)
            check_separable(student, len((forecast_shape(student_config) or plain_shape(student_config)).layers))

    def _teacher(self, context: Context) -> Checkpoint:
        return named_teacher(self.config.teacher, context) or context.current

    def _student(self, context: Context, source: Checkpoint, teacher: nn.Module, seed: int) -> nn.Module:
        settings = self.config.student
        if settings is None:
            return load_compressed(context.current.path)
        few = sampled(context.data.train, settings.sample, seed=seed) if settings.sample else None
        text = None if few is None else encode_split(source, few, max_tokens=self.config.max_tokens)
        return settings.make(teacher, text)

    def _student_shape(self, context: Context) -> Shape:
        """Returns what the losses must know of the student, before there is one."""
        known = read_shape(context.current) if self.config.student is None else None
        return model_shape(self._student_config(context), known)

    def _student_config(self, context: Context) -> Any:
        """Returns the transformers config of the student, before there is one."""
        if self.config.student is None:
            return load_config(context.current)
        teacher = self._teacher(context)
        return self.config.student.model_config_for(with_shape(load_config(teacher), read_shape(teacher)))


def _encoded(
    data: TextDataset, tokenizer: Checkpoint, config: Any, *, max_tokens: int, folder: Path
) -> dict[str, EncodedSplit]:
    """Returns the splits as a model of ``config`` takes them."""
    return {
        name: encode_split(tokenizer, split, max_tokens=max_tokens, config=config, folder=folder)
        for name, split in data.splits.items()
    }


def _visited(data: EncodedSplit, config: DistillConfig, parts: int, seed: int) -> np.ndarray:
    """Returns the positions that training will visit, whether at once or part by part."""
    if not parts:
        return visited(data, config, seed)
    settings = part_settings(config, parts)
    return np.unique(np.concatenate([visited(data, settings, seed + number) for number in range(parts)]))


def _evaluated(answers: TeacherOutputs, data: EncodedSplit) -> Evaluation:
    return evaluate_logits(answers.logits, data.labels, truncated=data.truncated)


def _facts(evaluations: dict[str, Evaluation]) -> dict[str, Any]:
    return {name: evaluation.model_dump() for name, evaluation in evaluations.items()}
