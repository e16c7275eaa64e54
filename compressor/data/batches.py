"""Tokenised splits, and batches of sentences of like length so that little of a batch is padding."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from compressor.core.checkpoint import Checkpoint
from compressor.data.dataset import Split
from compressor.families import adapter_for
from compressor.models import load_config
from compressor.text import TOKEN_TYPE_IDS, Encoded, SentenceEncoder

_POOL_BATCHES = 32
"""Batches whose sentences are sorted together; larger pools pad less and shuffle less."""


@dataclass(frozen=True)
class EncodedSplit:
    """A split as token ids, ready to be padded into batches for one model."""

    encoder: SentenceEncoder
    encoded: tuple[Encoded, ...]
    labels: tuple[Any, ...]
    takes_token_types: bool

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of each sentence, specials included, after truncation."""
        return tuple(map(len, self.encoded))

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


def encode_split(checkpoint: Checkpoint, split: Split, *, max_tokens: int, config: Any = None) -> EncodedSplit:
    """Tokenises a split with a checkpoint's tokenizer, cut to ``max_tokens`` or the model's own limit if that is less.

    Args:
        checkpoint: where the tokenizer is.
        split: the texts.
        max_tokens: the most tokens of a text, specials included.
        config: transformers config of the model that reads them; default the checkpoint's own.

    Raises:
        ModelError: no ``tokenizer.json``, or an unknown family.
    """
    config = config or load_config(checkpoint)
    adapter = adapter_for(config)
    limit = min(max_tokens, adapter.max_tokens(config))
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=limit)
    encoded = tuple(encoder.encode(split.texts))
    return EncodedSplit(encoder, encoded, split.labels, adapter.takes_token_types(config))


def sorted_batches(lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Returns index batches in order of length: the cheapest order for inference."""
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def shuffled_batches(lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int) -> list[list[int]]:
    """Returns one epoch's index batches: random, yet of like length within a batch; every index exactly once.

    The order depends on ``seed`` and ``epoch`` alone, so an interrupted run finds its place again.
    """
    rng = random.Random(f"{seed}-{epoch}")
    order = list(range(len(lengths)))
    rng.shuffle(order)
    pool = batch_size * _POOL_BATCHES
    batches = []
    for start in range(0, len(order), pool):
        part = sorted(order[start : start + pool], key=lambda index: lengths[index])
        batches += [part[first : first + batch_size] for first in range(0, len(part), batch_size)]
    rng.shuffle(batches)
    return batches
