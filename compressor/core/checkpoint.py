"""A checkpoint: a Hugging Face folder that loads with one call and no network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from compressor.core.errors import ModelError
from compressor.core.folders import MARKER
from compressor.core.hashing import sha256_folder

WEIGHTS = "model.safetensors"
COMPRESSION = "compression.json"
"""What a Hugging Face config cannot say: per-layer shapes, shared groups, the history of what was done."""
QUANTIZATION = "quantization.json"
"""The plan of a quantize stage, realised by each export format in its own terms."""


@dataclass(frozen=True)
class Checkpoint:
    """A folder with ``config.json``, safetensors weights and tokenizer files.

    Reading the weights is :func:`compressor.models.load_compressed`'s work; this value only knows the folder.
    """

    path: Path

    @classmethod
    def open(cls, path: Path) -> Checkpoint:
        """Checks that ``path`` is a model folder and returns it.

        Raises:
            ModelError: no folder, no ``config.json``, or weights only as pickle, which can run code when read.
        """
        if not path.is_dir():
            state = "is not a folder" if path.exists() else "does not exist"
            raise ModelError(f"{path} {state}; expected a Hugging Face model folder", remedy="check the path")
        if not (path / "config.json").is_file():
            raise ModelError(
                f"{path} holds no config.json; expected a Hugging Face model folder",
                remedy="save the model there with save_pretrained()",
            )
        if not any(path.glob("*.safetensors")):
            pickles = sorted(file.name for file in path.iterdir() if file.suffix in {".bin", ".pt", ".pth", ".ckpt"})
            found = f"only pickled weights ({', '.join(pickles)})" if pickles else "no weights"
            raise ModelError(
                f"{path} holds {found}; expected {WEIGHTS} (a pickle can run code when it is read, so it is refused)",
                remedy="load it where you trust it and save it again with save_pretrained(safe_serialization=True)",
            )
        return cls(path.resolve())

    @cached_property
    def hash(self) -> str:
        """SHA-256 over all files but the marker."""
        return sha256_folder(self.path, exclude={MARKER})

    @cached_property
    def config(self) -> dict[str, Any]:
        """The parsed ``config.json``."""
        return self._json("config.json") or {}

    @cached_property
    def compression(self) -> dict[str, Any]:
        """The parsed ``compression.json``; empty where nothing was compressed."""
        return self._json(COMPRESSION) or {}

    @cached_property
    def quantization(self) -> dict[str, Any] | None:
        """The parsed ``quantization.json``, or None where no quantize stage ran."""
        return self._json(QUANTIZATION)

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the order of the logits."""
        # A config leaves its labels out where they are transformers' default: two, without names.
        names: dict[str, str] = self.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
        return tuple(names[key] for key in sorted(names, key=int))

    @property
    def size_bytes(self) -> int:
        """Bytes of the weight files."""
        return sum(file.stat().st_size for file in self.path.glob("*.safetensors"))

    def _json(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        if not file.is_file():
            return None
        try:
            value = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ModelError(f"{file} is not valid JSON: {error}", remedy="restore the file") from error
        if not isinstance(value, dict):
            raise ModelError(f"{file} holds no JSON object", remedy="restore the file")
        return value
