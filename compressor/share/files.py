"""What a checkpoint folder holds besides its model: carried along when the model changes."""

from __future__ import annotations

import shutil
from pathlib import Path

from torch import nn

from compressor.core.checkpoint import COMPRESSION, QUANTIZATION, Checkpoint
from compressor.core.errors import StageError
from compressor.core.folders import MARKER
from compressor.finetune import check_saved
from compressor.models import save_checkpoint, unique_parameters

_MODEL = ("*.safetensors*", "*.bin", "*.bin.index.json", "*.pt", "*.h5", "*.msgpack", "*.onnx", "*.ot")
_DERIVED = (
    MARKER,
    QUANTIZATION,
    COMPRESSION,
    "importance.json",
    "pretraining",
    "sensitivity.svg",
    "onnx",
    "openvino",
    ".git*",
    ".cache",
)


def carry_files(source: Checkpoint, output: Path, *more: str) -> None:
    """Copies all files of a checkpoint but weights and what was derived from them (a quantisation plan, for example).

    Args:
        source: the checkpoint that was changed.
        output: the new checkpoint's folder.
        more: patterns of further files to leave behind.
    """
    ignore = shutil.ignore_patterns(*_MODEL, *_DERIVED, *more)
    shutil.copytree(source.path, output, ignore=ignore, dirs_exist_ok=True)


def save_changed(model: nn.Module, source: Checkpoint, output: Path) -> None:
    """Saves a model that was made of ``source``, with the files that still belong to it."""
    carry_files(source, output)
    save_checkpoint(model, source.path, output)


def check_computed(output: Path) -> int:
    """Proves that a saved model reads back, is finite and has the parameters that were computed; returns how many.

    Raises:
        StageError: other parameters than ``predicted`` in the last entry of its history.
    """
    found = unique_parameters(check_saved(output))
    expected = Checkpoint.open(output).compression["history"][-1]["parameters"]["predicted"]
    if found != expected:
        raise StageError(f"{output} has {found} parameters; computed {expected}", remedy="report this stage")
    return found
