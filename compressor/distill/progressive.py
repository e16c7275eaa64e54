"""Transfer layer by layer: each part of the student is trained with what lies below it frozen (Sun et al. 2020)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from compressor.core.errors import RecipeError
from compressor.core.folders import new_folder, write_json
from compressor.data.batches import EncodedSplit
from compressor.distill.losses import EmbeddingsLoss, HiddenLoss, LossConfig
from compressor.distill.losses.base import MappedLoss
from compressor.distill.objective import Distillation
from compressor.distill.outputs import Shape
from compressor.distill.teacher import TeacherOutputs
from compressor.families import adapter_for
from compressor.processes import processes
from compressor.stage import Progress
from compressor.train.loop import train
from compressor.train.settings import TrainSettings
from compressor.train.state import Curves

_CURVES = "curves.json"
_WEIGHTS = "student.pt"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One step of the transfer."""

    layers: tuple[int, ...]
    """Zero-based student layers that are trained."""
    losses: tuple[LossConfig, ...]
    """The losses at the last of them."""


def plan_parts(losses: Sequence[LossConfig], student: Shape, teacher: Shape) -> tuple[Part, ...]:
    """Cuts a student into parts, each up to a layer that some loss compares with a teacher's.

    A student as deep as the losses' map has one layer a part; of a deeper one, a part holds the layers between two that
    have a teacher layer. The embeddings are trained with the first part.

    Raises:
        RecipeError: a loss that does not compare layer with layer, or that has a schedule.
    """
    for loss in losses:
        if not isinstance(loss, MappedLoss | EmbeddingsLoss):
            raise RecipeError(
                f"'progressive' trains layer by layer; the loss '{loss.name}' is of the whole student",
                remedy="use it in a joint distill stage after this one",
            )
        if loss.turns() != (0.0, 1.0):
            raise RecipeError(
                f"the loss '{loss.name}' has a schedule; 'progressive' has one of its own", remedy="leave it out"
            )
    mapped = [loss for loss in losses if isinstance(loss, MappedLoss)]
    ends = sorted({ours for loss in mapped for ours, _ in loss.mapped(student, teacher)})
    if not ends:
        raise RecipeError("'progressive' needs a loss that compares layers", remedy="add 'hidden' or 'mobilebert'")
    parts = []
    for begin, end in zip((0, *(end + 1 for end in ends)), ends, strict=False):
        chosen: list[LossConfig] = []
        for loss in losses:
            if isinstance(loss, EmbeddingsLoss):
                chosen += [loss] if end == ends[0] else []
            elif isinstance(loss, MappedLoss) and any(ours == end for ours, _ in loss.mapped(student, teacher)):
                change: dict[str, object] = {"layers": (end,)}
                if isinstance(loss, HiddenLoss):
                    change["embeddings"] = loss.embeddings and end == ends[0]
                chosen.append(loss.model_copy(update=change))
        parts.append(Part(layers=tuple(range(begin, end + 1)), losses=tuple(chosen)))
    return tuple(parts)


def part_settings(settings: TrainSettings, parts: int) -> TrainSettings:
    """Returns the settings of one part: an equal share of the epochs."""
    return settings.model_copy(update={"epochs": settings.epochs / parts})


def train_progressively(
    student: nn.Module,
    teacher: TeacherOutputs,
    parts: Sequence[Part],
    data: EncodedSplit,
    settings: TrainSettings,
    *,
    shapes: tuple[Shape, Shape],
    seed: int,
    scratch: Path,
    progress: Progress,
) -> Curves:
    """Trains each part in turn, in place, with everything else frozen, and returns the curves one after the other.

    Each part starts its own rate schedule and its own order of batches (``seed`` plus its number). A killed run goes on
    within the part where it was.

    Args:
        student: the model; on the CPU in evaluation mode afterwards, as trainable as before.
        teacher: outputs for all parts.
        parts: from :func:`plan_parts`.
        data: the training split.
        settings: of all parts together.
        shapes: the student's and the teacher's.
        seed: of the first part.
        scratch: folder for checkpoints.
        progress: told after every step.
    """
    curves: Curves = {}
    for number, part in enumerate(parts):
        folder = scratch / f"part-{number:02d}"
        folder.mkdir(exist_ok=True)
        kept = folder / "done"
        if (kept / _CURVES).is_file():
            student.load_state_dict(torch.load(kept / _WEIGHTS, weights_only=True))
            found: Curves = json.loads((kept / _CURVES).read_text(encoding="utf-8"))
        else:
            torch.manual_seed(seed + number)
            objective = Distillation(student, teacher, part.losses, student_shape=shapes[0], teacher_shape=shapes[1])
            with _only(student, part.layers):
                found = train(
                    objective, data, part_settings(settings, len(parts)), seed=seed + number, scratch=folder,
                    progress=progress,
                )  # fmt: skip
            if processes().is_main:
                with new_folder(kept, "result") as made:
                    torch.save(student.state_dict(), made / _WEIGHTS)
                    write_json(made / _CURVES, found)
            processes().share(None)
        length = len(curves.get("total", ()))
        for name in dict.fromkeys((*curves, *found)):  # in an order that does not change from run to run
            before = curves.get(name, [None] * length)
            curves[name] = [*before, *found.get(name, [None] * len(found["total"]))]
    return curves


@contextmanager
def _only(student: nn.Module, layers: Sequence[int]) -> Iterator[None]:
    """Freezes all but the named layers inside the block; with layer 0 goes what is beside the layers: the embeddings,
    and in DeBERTa the relative positions that all layers read."""
    adapter = adapter_for(student.config)
    stored = tuple(f"{path}." for path in adapter.stored_layers(student))
    inside = tuple(stored[layer] for layer in layers)
    before = {name: parameter.requires_grad for name, parameter in student.named_parameters()}
    for name, parameter in student.named_parameters():
        beside = 0 in layers and adapter.in_body(name) and not name.startswith(stored)
        if not (beside or name.startswith(inside)):
            parameter.requires_grad_(False)
    try:
        yield
    finally:
        for name, parameter in student.named_parameters():
            parameter.requires_grad_(before[name])


def check_separable(shape: Shape, stored: int) -> None:
    """Raises RecipeError where layers share their weights, so that one cannot be trained without the others."""
    if stored != shape.layers:
        raise RecipeError(
            f"the student applies {shape.layers} layers and stores {stored}; 'progressive' freezes one layer after "
            "the other and expects each to have weights of its own",
            remedy="train it jointly",
        )
