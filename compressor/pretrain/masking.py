"""Hiding tokens: which ones, and what stands in their place (Devlin et al. 2019; Liu et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from compressor.pretrain.config import MaskSettings
from compressor.pretrain.pieces import Pieces
from compressor.text import ATTENTION_MASK, INPUT_IDS
from compressor.train.objective import Inputs


def hidden_places(
    ids: np.ndarray, pieces: Pieces, draw: np.random.Generator, *, share: float, whole_word: bool
) -> np.ndarray:
    """Returns the places, ascending, of the tokens to predict: ``share`` of a text's, at least one, no special token.

    Whole words are taken in random order while they fit the number of tokens; one that is too long is passed over,
    unless nothing else fits.

    Args:
        ids: one text's token ids, shape (tokens,).
        pieces: of the vocabulary.
        draw: random numbers.
        share: of the tokens that are not special.
        whole_word: all tokens of a word or none.
    """
    known = np.flatnonzero(~pieces.special[ids])
    if not len(known):
        return known
    count = max(1, round(share * len(known)))
    if not whole_word:
        return np.sort(draw.choice(known, count, replace=False))
    words = pieces.words(ids)
    order = draw.permutation(len(words))
    chosen: list[int] = []
    for index in order:
        if len(chosen) + len(words[index]) <= count:
            chosen += words[index]
    return np.sort(np.array(chosen or words[order[0]]))


@dataclass(frozen=True)
class MaskedBatch:
    """A batch some of whose tokens were hidden."""

    inputs: Inputs
    """As the model takes them; a copy of the clean ones but for ``input_ids``."""
    rows: torch.Tensor
    """Row of each token to predict, shape (hidden,)."""
    columns: torch.Tensor
    """Its place in the row, shape (hidden,)."""
    targets: torch.Tensor
    """What stood there, shape (hidden,)."""
    draws: torch.Tensor
    """A uniform random number for each, float64 of shape (hidden,), on the CPU."""


@dataclass(frozen=True, kw_only=True)
class Masks:
    """Hides tokens of a batch. What is hidden depends on the seed, the epoch and the text's position alone, so that a
    run repeats, resumes, and is the same however its texts are put into batches and spread over processes."""

    pieces: Pieces
    settings: MaskSettings
    seed: int

    def draw(self, epoch: int, index: int, purpose: int = 0) -> np.random.Generator:
        """Returns the random numbers of one text in one epoch."""
        epoch = epoch if self.settings.masking == "dynamic" else 0
        return np.random.default_rng((self.seed, epoch, index, purpose))

    def hide(self, inputs: Inputs, indices: Sequence[int], epoch: int) -> MaskedBatch:
        """Returns a masked copy of a batch.

        Args:
            inputs: the clean batch, padded at the end.
            indices: positions of its rows in the training split.
            epoch: which pass over the training split this is.
        """
        settings, device = self.settings, inputs[INPUT_IDS].device
        ids = inputs[INPUT_IDS].cpu().numpy().copy()
        lengths = inputs[ATTENTION_MASK].sum(dim=1).tolist()
        rows, columns, targets, draws = [], [], [], []
        for row, (index, length) in enumerate(zip(indices, lengths, strict=True)):
            draw = self.draw(epoch, index)
            text = ids[row, :length]  # a view: what is changed here is changed in the batch
            places = hidden_places(text, self.pieces, draw, share=settings.share, whole_word=settings.whole_word)
            rows.append(np.full(len(places), row))
            columns.append(places)
            targets.append(text[places])
            fate = draw.random(len(places))
            text[places[fate < settings.mask_share]] = self.pieces.mask_id
            swapped = places[(fate >= settings.mask_share) & (fate < settings.mask_share + settings.random_share)]
            text[swapped] = draw.choice(self.pieces.ordinary, len(swapped))
            draws.append(draw.random(len(places)))
        return MaskedBatch(
            inputs={**inputs, INPUT_IDS: torch.from_numpy(ids).to(device)},
            rows=torch.from_numpy(np.concatenate(rows)).to(device),
            columns=torch.from_numpy(np.concatenate(columns)).to(device),
            targets=torch.from_numpy(np.concatenate(targets)).to(device),
            draws=torch.from_numpy(np.concatenate(draws)),
        )

    def count(self, inputs: Inputs, indices: Sequence[int], epoch: int) -> float:
        """Returns how many tokens :meth:`hide` hides, the number over which a loss on them is a mean; never quite 0."""
        return float(len(self.hide(inputs, indices, epoch).targets)) or 1e-9
