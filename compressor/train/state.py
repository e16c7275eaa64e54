"""Checkpoints within training: weights, optimiser, schedule, random state and curves, written whole or not at all."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compressor.core.folders import new_folder, write_json

if TYPE_CHECKING:
    from accelerate import Accelerator

logger = logging.getLogger(__name__)

Curves = dict[str, list[float]]
"""Loss name to its value at every step, with ``total`` the weighted sum."""

_FOLDER = "training"
_PROGRESS = "progress.json"


def save_state(accelerator: Accelerator, scratch: Path, *, step: int, curves: Curves) -> None:
    """Writes everything needed to go on after ``step`` finished steps."""
    with new_folder(scratch / _FOLDER, "result") as folder:
        accelerator.save_state(str(folder))
        write_json(folder / _PROGRESS, {"step": step, "curves": curves})


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
