"""The variants of a training split as a file: written as they are made, whole or not at all, read back as texts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch

from compressor.augment.config import AugmentConfig
from compressor.augment.substitution import Substitution
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import DataError
from compressor.core.folders import disk_errors
from compressor.core.schema import Text
from compressor.data.dataset import Split
from compressor.data.stored import StoredTexts
from compressor.models import resolve
from compressor.pretrain.encoders import load_masked_language_model
from compressor.stage import Context

UNLABELLED = -100
"""The label of a variant: what it is, the teacher alone says. Torch's cross-entropy passes over it."""
_FILE = "augmented.jsonl"


def augmentation_model(settings: AugmentConfig, context: Context) -> Checkpoint:
    """Returns the checkpoint of the masked language model that the settings name.

    Raises:
        ModelError: neither an earlier stage nor a model.
    """
    return context.checkpoints.get(settings.model) or resolve(settings.model)


def augmented_texts(settings: AugmentConfig, context: Context, *, seed: int, max_tokens: int) -> Sequence[Text]:
    """Returns variants of the training texts; a run that is resumed reads those it made before.

    Raises:
        ModelError: a model that predicts no masked words.
        DataError: no text could be varied.
    """
    file = context.scratch / _FILE
    if not file.is_file():
        source, texts = augmentation_model(settings, context), context.data.train.texts
        # A run that finds the file draws nothing here either: what comes after starts from the same random numbers.
        with torch.random.fork_rng(devices=[]):
            model = load_masked_language_model(source)
        substitution = Substitution(model, source, settings, seed=seed, max_tokens=max_tokens)
        write_rows(substitution.variants(_told(texts, context), len(texts)), file)
    found = StoredTexts(read_rows(file))
    if not found:
        raise DataError(
            f"none of the {len(context.data.train.texts)} training texts has a word that {settings.model} replaces",
            remedy="check that the model is of the texts' language, or take 'augment' out",
        )
    return found


def with_variants(split: Split, variants: Sequence[Text]) -> Split:
    """Returns a split with variants behind its own texts."""
    return Split(StoredTexts(chain(split.texts, variants)), (*split.labels, *(UNLABELLED,) * len(variants)))


def write_rows(rows: Iterable[Text], file: Path) -> None:
    """Writes one JSON value a line, each as it comes; the file appears when all are there."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with disk_errors(file):
        with temporary.open("w", encoding="utf-8") as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        temporary.replace(file)


def read_rows(file: Path) -> Iterator[Text]:
    """Yields what :func:`write_rows` wrote."""
    with file.open(encoding="utf-8") as stream:
        for line in stream:
            value = json.loads(line)
            yield value if isinstance(value, str) else (value[0], value[1])


def _told(texts: Iterable[Text], context: Context) -> Iterable[Text]:
    total = len(context.data.train.texts)
    for done, text in enumerate(texts, start=1):
        context.progress(done, total, "augmentation")
        yield text
