"""Tokenised splits, and batches of sentences of like length so that little of a batch is padding."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.data.dataset import Split
from compressor.data.stored import StoredTokens
from compressor.families import adapter_for
from compressor.models import load_config
from compressor.text import TOKEN_TYPE_IDS, Encoded, SentenceEncoder

_POOL_BATCHES = 32
"""Batches whose sentences are sorted together; larger pools pad less and shuffle less."""


_ENCODED_TOGETHER = 1024


class Batches(Sequence[list[int]]):
    """Index batches as parts of one order of all indices: a few bytes an index, whatever the number of batches."""

    def __init__(self, order: Sequence[int], bounds: Sequence[tuple[int, int]]) -> None:
        self._order = order
        self._bounds = bounds

    def __len__(self) -> int:
        return len(self._bounds)

    @overload
    def __getitem__(self, index: int) -> list[int]: ...

    @overload
    def __getitem__(self, index: slice) -> Batches: ...

    def __getitem__(self, index: int | slice) -> list[int] | Batches:
        if isinstance(index, slice):
            return Batches(self._order, self._bounds[index])
        start, end = self._bounds[index]
        return list(self._order[start:end])

    def __iter__(self) -> Iterator[list[int]]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batches) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash((tuple(self._order), tuple(self._bounds)))


@dataclass(frozen=True)
class EncodedSplit:
    """A split as token ids, in a file, ready to be padded into batches for one model."""

    encoder: SentenceEncoder
    encoded: Sequence[Encoded]
    labels: tuple[Any, ...]
    takes_token_types: bool

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def lengths(self) -> Sequence[int]:
        """Tokens of each sentence, specials included, after truncation."""
        found = self.encoded
        return found.lengths if isinstance(found, StoredTokens) else tuple(map(len, found))

    @property
    def truncated(self) -> int:
        """How many sentences were cut to the model's limit."""
        return sum(item.truncated for item in self.encoded)

    def inputs(self, indices: Sequence[int], device: torch.device | None = None) -> dict[str, torch.Tensor]:
        """Returns the model's inputs for the chosen sentences: int64 tensors of shape (batch, tokens)."""
        batch = self.encoder.pad([self.encoded[index] for index in indices])
        if not self.takes_token_types:
            del batch[TOKEN_TYPE_IDS]
        return {name: torch.from_numpy(array).to(device) for name, array in batch.items()}


def encode_split(
    checkpoint: Checkpoint, split: Split, *, max_tokens: int, config: Any = None, folder: Path | None = None
) -> EncodedSplit:
    """Tokenises a split with a checkpoint's tokenizer, cut to ``max_tokens`` or the model's own limit if that is less.

    Args:
        checkpoint: where the tokenizer is.
        split: the texts.
        max_tokens: the most tokens of a text, specials included.
        config: transformers config of the model that reads them; default the checkpoint's own.
        folder: where the token ids are kept while they are needed; default the system's place for temporary files.

    Raises:
        ModelError: no ``tokenizer.json``, or an unknown family.
    """
    config = config or load_config(checkpoint)
    adapter = adapter_for(config)
    limit = min(max_tokens, adapter.max_tokens(config))
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=limit)
    pieces = (split.texts[start : start + _ENCODED_TOGETHER] for start in range(0, len(split), _ENCODED_TOGETHER))
    encoded = StoredTokens((item for texts in pieces for item in encoder.encode(texts)), folder)
    return EncodedSplit(encoder, encoded, split.labels, adapter.takes_token_types(config))


def sorted_batches(lengths: Sequence[int], batch_size: int) -> Batches:
    """Returns index batches in order of length: the cheapest order for inference."""
    order = array("i", np.argsort(np.asarray(lengths, dtype=np.int32), kind="stable").astype(np.int32).tobytes())
    return Batches(order, _bounds(0, len(order), batch_size))


def shuffled_batches(lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int) -> Batches:
    """Returns one epoch's index batches: random, yet of like length within a batch; every index exactly once.

    The order depends on ``seed`` and ``epoch`` alone, so an interrupted run finds its place again.
    """
    rng = random.Random(f"{seed}-{epoch}")
    order = array("i", range(len(lengths)))
    rng.shuffle(order)
    pool = batch_size * _POOL_BATCHES
    bounds = []
    for start in range(0, len(order), pool):
        part = sorted(order[start : start + pool], key=lambda index: lengths[index])
        order[start : start + pool] = array("i", part)
        bounds += _bounds(start, start + len(part), batch_size)
    rng.shuffle(bounds)
    return Batches(order, bounds)


def _bounds(start: int, end: int, batch_size: int) -> list[tuple[int, int]]:
    return [(first, min(first + batch_size, end)) for first in range(start, end, batch_size)]
