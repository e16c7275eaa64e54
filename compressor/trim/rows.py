"""The rows that belong to kept pieces, taken out of a checkpoint's weights without loading the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from compressor.core.checkpoint import WEIGHTS, Checkpoint
from compressor.core.errors import ModelError
from compressor.families import FamilyAdapter


def trim_rows(
    checkpoint: Checkpoint, config: Any, adapter: FamilyAdapter, kept: Sequence[int], output: Path
) -> tuple[int, int]:
    """Writes a checkpoint's weights with the kept rows of its word embeddings and of a head over the vocabulary.

    Args:
        checkpoint: the source; its tensors are read one at a time.
        config: its transformers config.
        adapter: of its family.
        kept: old ids in the order of the new ones.
        output: the new checkpoint's folder.

    Returns:
        Parameters before and after, as stored.

    Raises:
        ModelError: damaged weights, or none of word embeddings.
    """
    rows = int(config.vocab_size)
    index = torch.tensor(list(kept))
    tables = {f"{adapter.word_embeddings}.weight", f"{adapter.word_embeddings}.weight".removeprefix(f"{adapter.base}.")}
    found: dict[str, torch.Tensor] = {}
    before = 0
    try:
        for file in sorted(checkpoint.path.glob("*.safetensors")):
            with safe_open(file, framework="pt") as stored:
                for name in stored.keys():  # noqa: SIM118  safe_open is no mapping
                    tensor = stored.get_tensor(name)
                    before += tensor.numel()
                    for axis in _axes(name, tuple(tensor.shape), rows, tables, adapter):
                        tensor = tensor.index_select(axis, index)
                    found[name] = tensor
    except SafetensorError as error:
        raise ModelError(
            f"{checkpoint.path} holds a damaged weight file ({error}); expected whole safetensors",
            remedy="fetch the model again",
        ) from error
    if not tables & set(found):
        raise ModelError(
            f"{checkpoint.path} holds no {adapter.word_embeddings}.weight; expected word embeddings",
            remedy="check that the weights are those of config.json's model_type",
        )
    save_file(found, output / WEIGHTS, metadata={"format": "pt"})
    return before, sum(tensor.numel() for tensor in found.values())


def _axes(name: str, shape: tuple[int, ...], rows: int, tables: set[str], adapter: FamilyAdapter) -> tuple[int, ...]:
    """Returns the axes of a tensor that run over the vocabulary.

    Those are the rows of the word embeddings, and in a head over the vocabulary (masked words) whatever is as long:
    its tied matrix and its bias, MobileBERT's second matrix.
    """
    if name in tables:
        return (0,)
    over_words = ("predictions.", "lm_head.", "vocab_projector.", "generator_lm_head.")
    if not any(part in name for part in over_words):
        return ()
    return tuple(axis for axis, extent in enumerate(shape) if extent == rows)
