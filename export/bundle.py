"""What travels beside the model file: tokenizer, config, labels, ``io.json``, the card."""

from __future__ import annotations

import json
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from compressor.core.artifact import CARD, IO, LABELS, PARITY, Artifact, IOSpec, Manifest
from compressor.core.checkpoint import Checkpoint
from compressor.core.folders import write_json, write_text
from compressor.tasks import HEADS
from export.parity import Parity

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json", "merges.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model",
)  # fmt: skip


def write_companions(folder: Path, checkpoint: Checkpoint, labels: tuple[str, ...], io: IOSpec, parity: Parity) -> None:
    """Writes everything but the model file, the card and the manifest; the folder then loads with no network."""
    for name in TOKENIZER_FILES:
        if (checkpoint.path / name).is_file():
            shutil.copyfile(checkpoint.path / name, folder / name)
    shutil.copyfile(checkpoint.path / "config.json", folder / "config.json")
    write_text(folder / LABELS, "".join(f"{name}\n" for name in labels))
    write_json(folder / IO, io.model_dump(mode="json"))
    write_json(folder / PARITY, parity.model_dump(mode="json"))


def write_card(folder: Path, manifest: Manifest, io: IOSpec, parity: Parity, labels: tuple[str, ...]) -> None:
    """Writes the generated ``README.md``: what this is, what was proven, how to feed it."""
    template = files("export").joinpath("card.md.jinja").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    values: dict[str, Any] = {
        "manifest": manifest,
        "io": io,
        "parity": parity,
        "labels": labels,
        "measures": HEADS[io.task].measures,
    }
    write_text(folder / CARD, environment.from_string(template).render(**values, json=json.dumps))


def read_parity(artifact: Artifact) -> Parity:
    """Returns what ``parity.json`` of an artifact says."""
    return Parity.model_validate_json((artifact.path / PARITY).read_bytes())
