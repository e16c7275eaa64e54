"""Checkpoints within training: weights, optimiser, schedule, random state and curves, written whole or not at all."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelerate.utils import broadcast_object_list

from compressor.core.folders import new_folder, write_json

if TYPE_CHECKING:
    from accelerate import Accelerator
    from torch import nn

logger = logging.getLogger(__name__)

Curves = dict[str, list[float | None]]
"""Loss name to its value at every step (None where it had no weight), with ``total`` the weighted sum."""

_FOLDER = "training"
_LAST_GOOD = "last-good"
_PROGRESS = "progress.json"


def save_state(accelerator: Accelerator, scratch: Path, *, step: int, curves: Curves) -> None:
    """Writes everything needed to go on after ``step`` finished steps; call it in every process."""
    with _one_folder(accelerator, scratch / _FOLDER) as folder:
        accelerator.save_state(str(folder))  # each process writes its own random state
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            write_json(folder / _PROGRESS, {"step": step, "curves": curves})


def save_last_good(accelerator: Accelerator, model: nn.Module, scratch: Path, batch: dict[str, Any]) -> Path:
    """Writes the weights alone, to be looked at after a failure, and what failed; returns their folder.

    They are no checkpoint to go on from: the random stream has moved past the batch that failed, so a run resumed here
    would not be the one that was asked for. :func:`load_state` never reads them.

    Args:
        accelerator: knows the processes; call it in each.
        model: the objective, not wrapped.
        scratch: where the folder is made.
        batch: step, sentences and losses of the batch that failed, for ``batch.json``.
    """
    target = scratch / _LAST_GOOD
    with _one_folder(accelerator, target) as folder:
        if accelerator.is_main_process:
            accelerator.save_model(model, str(folder))
            write_json(folder / "batch.json", batch)
    return target


@contextmanager
def _one_folder(accelerator: Accelerator, target: Path) -> Iterator[Path]:
    """A :func:`new_folder` for all processes: the main one makes and publishes it, the others wait for that."""
    with new_folder(target, "result") if accelerator.is_main_process else nullcontext(target) as folder:
        yield Path(broadcast_object_list([str(folder)])[0])
        accelerator.wait_for_everyone()
    accelerator.wait_for_everyone()


def load_state(accelerator: Accelerator, scratch: Path) -> tuple[int, Curves]:
    """Restores an earlier checkpoint of the same run into the prepared objects.

    Returns:
        The number of finished steps and the curves up to there; (0, {}) where there is none.
    """
    folder = scratch / _FOLDER
    if not (folder / _PROGRESS).is_file():
        return 0, {}
    progress: dict[str, Any] = json.loads((folder / _PROGRESS).read_text(encoding="utf-8"))
    accelerator.load_state(str(folder))
    logger.info("resuming training after step %d from %s", progress["step"], folder)
    return int(progress["step"]), progress["curves"]
