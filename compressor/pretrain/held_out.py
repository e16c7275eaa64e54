"""How well held-out words are predicted, each hidden alone."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from compressor.core.errors import DataError
from compressor.data.batches import EncodedSplit
from compressor.pretrain.pieces import Pieces
from compressor.text import ATTENTION_MASK, INPUT_IDS

_BATCH_SIZE = 64


def masked_words(
    encoder: nn.Module, head: nn.Module, data: EncodedSplit, pieces: Pieces, *, most: int, seed: int
) -> dict[str, float]:
    """Hides one token at a time and predicts it from all others.

    Returns:
        ``tokens`` that were hidden; ``masked_accuracy``, the share predicted right; ``pseudo_perplexity``, the
        exponential of their mean negative log-likelihood (Salazar et al. 2020, equation 3).

    Raises:
        DataError: no text has a token.
    """
    places = _places(data, pieces, most=most, seed=seed)
    if not places:
        raise DataError(
            "no validation text has a word to predict; expected held-out texts to measure on",
            remedy="name a validation file that holds text",
        )
    places.sort(key=lambda place: data.lengths[place[0]])
    right, loss = 0, 0.0
    training = encoder.training
    encoder.eval()
    head.eval()
    with torch.inference_mode():
        for start in range(0, len(places), _BATCH_SIZE):
            part = places[start : start + _BATCH_SIZE]
            inputs = data.inputs([index for index, _ in part])
            rows, columns = torch.arange(len(part)), torch.tensor([place for _, place in part])
            targets = inputs[INPUT_IDS][rows, columns]
            inputs[INPUT_IDS][rows, columns] = pieces.mask_id
            logits = head(encoder(**inputs).last_hidden_state[rows, columns]).float()
            right += int((logits.argmax(dim=-1) == targets).sum())
            loss += float(functional.cross_entropy(logits, targets, reduction="sum"))
    encoder.train(training)
    head.train(training)
    perplexity = math.exp(min(loss / len(places), 700.0))
    return {"tokens": len(places), "masked_accuracy": right / len(places), "pseudo_perplexity": perplexity}


def _places(data: EncodedSplit, pieces: Pieces, *, most: int, seed: int) -> list[tuple[int, int]]:
    """Returns (text, place) of at most ``most`` tokens, drawn from as many texts as there are tokens to draw."""
    draw = np.random.default_rng((seed, len(data)))
    texts = np.sort(draw.permutation(len(data))[:most])
    found: list[tuple[int, int]] = []
    for start in range(0, len(texts), _BATCH_SIZE):
        part = texts[start : start + _BATCH_SIZE].tolist()
        inputs = data.inputs(part)
        known = inputs[ATTENTION_MASK].bool().numpy() & ~pieces.special[inputs[INPUT_IDS].numpy()]
        found += [(part[row], int(column)) for row, column in np.argwhere(known)]
    kept = np.sort(draw.permutation(len(found))[:most])
    return [found[place] for place in kept]
