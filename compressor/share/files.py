"""What a checkpoint folder holds besides its model: carried along when the model changes."""

from __future__ import annotations

import shutil
from pathlib import Path

from compressor.core.checkpoint import COMPRESSION, QUANTIZATION, Checkpoint
from compressor.core.folders import MARKER

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
