"""Masked language modelling: the hidden tokens are predicted from those around them (Devlin et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from compressor.data.batches import EncodedSplit
from compressor.pretrain.heads import MaskedHead
from compressor.pretrain.held_out import masked_words
from compressor.pretrain.masking import MaskedBatch, Masks
from compressor.pretrain.objectives.base import Measured, PretrainObjective
from compressor.train.objective import Inputs

MLM = "mlm"
"""Name of the masked-language-model loss in curves and weights."""


def cross_entropy_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Returns the mean cross-entropy of logits (hidden, vocabulary); zero where a batch hides nothing."""
    return functional.cross_entropy(logits.float(), targets) if len(targets) else logits.float().sum()


def masked_loss(encoder: nn.Module, head: MaskedHead, batch: MaskedBatch) -> torch.Tensor:
    """Returns the cross-entropy of the hidden tokens, the mean over them.

    Only the hidden tokens go through the head, whose product with the vocabulary costs as much as a small encoder.
    """
    states = encoder(**batch.inputs).last_hidden_state[batch.rows, batch.columns]
    return cross_entropy_of(head(states), batch.targets)


class MaskedTerm(nn.Module):
    """The masked-language-model loss beside others: a pass of its own over a masked copy of the clean batch.

    Args:
        head: predicts the words; its parameters train along.
        masks: hides them.
        data: the training split.
    """

    def __init__(self, head: MaskedHead, masks: Masks, data: EncodedSplit) -> None:
        super().__init__()
        self.head = head
        self._masks = masks
        self._data = data

    def forward(self, encoder: nn.Module, inputs: Inputs, indices: Sequence[int], epoch: int) -> torch.Tensor:
        """Returns the loss of one batch."""
        return masked_loss(encoder, self.head, self._masks.hide(inputs, indices, epoch))

    def units(self, indices: Sequence[int], epoch: int) -> float:
        """Returns over how many tokens the loss of these sentences is a mean."""
        return self._masks.count(self._data.inputs(indices), indices, epoch)


class MaskedWords(PretrainObjective):
    """The loss ``mlm``.

    Args:
        encoder: what is trained.
        head: predicts the words; trains along.
        masks: hides them.
        data: the training split.
        held_out: texts to be measured on.
        held_out_tokens: most tokens of them.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: MaskedHead,
        masks: Masks,
        *,
        data: EncodedSplit,
        held_out: EncodedSplit,
        held_out_tokens: int,
    ) -> None:
        super().__init__(encoder, {MLM: 1.0})
        self.head = head
        self._masks = masks
        self._data = data
        self._held_out = held_out
        self._held_out_tokens = held_out_tokens

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns the loss under the name ``mlm``."""
        return {MLM: masked_loss(self.model, self.head, self._masks.hide(inputs, indices, self.epoch))}

    def units(self, indices: Sequence[int], lengths: Sequence[int]) -> dict[str, float]:
        """Returns the number of hidden tokens; see the base class."""
        return {MLM: self._masks.count(self._data.inputs(indices), indices, self.epoch)}

    def measure(self) -> Measured:
        """Returns masked accuracy and pseudo-perplexity; see :func:`compressor.pretrain.held_out.masked_words`."""
        return masked_words(
            self.model, self.head, self._held_out, self._masks.pieces, most=self._held_out_tokens, seed=self._masks.seed
        )
