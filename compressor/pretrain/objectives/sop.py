"""Sentence order prediction: do the two halves of a text stand in their order? (Lan et al. 2020, section 3.1)"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import nn
from torch.nn import functional

from compressor.core.schema import Text
from compressor.data.batches import EncodedSplit
from compressor.pretrain.heads import MaskedHead
from compressor.pretrain.masking import Masks
from compressor.pretrain.objectives.base import Measured
from compressor.pretrain.objectives.mlm import MaskedWords, cross_entropy_of
from compressor.text import INPUT_IDS
from compressor.train.objective import Inputs

_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+")  # noqa: RUF001  full-width stops end sentences too
_SPACE = re.compile(r"\s+")
_ORDER = 1
"""Purpose of the random numbers that swap: not those that mask."""
_BATCH_SIZE = 32


def segments(text: str) -> tuple[str, str] | None:
    """Cuts a text in two near its middle: between sentences, or between words where it has one sentence.

    Returns:
        Both parts; None where the text has one word only.
    """
    text = text.strip()
    for boundary in (_SENTENCE, _SPACE):
        if gaps := [(gap.start(), gap.end()) for gap in boundary.finditer(text)]:
            end, start = min(gaps, key=lambda gap: abs(gap[0] + gap[1] - len(text)))
            return text[:end], text[start:]
    return None


def consecutive(texts: Iterable[Text]) -> Iterator[tuple[str, str]]:
    """Yields the two parts of every text that has two; the texts of a pair are cut each by itself."""
    single = (part for text in texts for part in ((text,) if isinstance(text, str) else text))
    return (cut for text in single if (cut := segments(text)) is not None)


def exchanged(pairs: Iterable[Text]) -> Iterator[Text]:
    """Yields every pair with its parts swapped."""
    return ((pair[1], pair[0]) for pair in pairs)


class SentenceOrder(MaskedWords):
    """The losses ``mlm`` and ``sop``: masked words of pairs half of which are swapped, and whether they are.

    Args:
        encoder: what is trained.
        head: predicts words; trains along.
        masks: hides them, and says which pairs are swapped.
        data: the training pairs in order.
        swapped: the same ones, each with its parts swapped.
        held_out: pairs to be measured on, in order.
        held_out_swapped: the same ones, swapped.
        held_out_tokens: most tokens of them.
        width: of the encoder's states.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: MaskedHead,
        masks: Masks,
        *,
        data: EncodedSplit,
        swapped: EncodedSplit,
        held_out: EncodedSplit,
        held_out_swapped: EncodedSplit,
        held_out_tokens: int,
        width: int,
    ) -> None:
        super().__init__(encoder, head, masks, data=data, held_out=held_out, held_out_tokens=held_out_tokens)
        self.weights = {"mlm": 1.0, "sop": 1.0}
        # A head of its own: the model's pooler belongs to the head of its task.
        self.order = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2))
        self._swapped = swapped
        self._held_out_swapped = held_out_swapped

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns both losses."""
        inputs, swapped = self.ordered(inputs, indices)
        batch = self._masks.hide(inputs, indices, self.epoch)
        states = self.model(**batch.inputs).last_hidden_state
        mlm = cross_entropy_of(self.head(states[batch.rows, batch.columns]), batch.targets)
        return {"mlm": mlm, "sop": functional.cross_entropy(self.order(states[:, 0]).float(), swapped)}

    def units(self, indices: Sequence[int], lengths: Sequence[int]) -> dict[str, float]:
        """Returns the numbers of hidden tokens and of pairs; see the base class."""
        inputs, _ = self.ordered(self._data.inputs(indices), indices)
        return {"mlm": self._masks.count(inputs, indices, self.epoch), "sop": float(len(indices))}

    def ordered(self, inputs: Inputs, indices: Sequence[int]) -> tuple[Inputs, torch.Tensor]:
        """Swaps the parts of about half of the pairs.

        Returns:
            The batch, and 1 for each pair that was swapped, 0 for each that was not: int64 of shape (batch,).
        """
        swap = [self._masks.draw(self.epoch, index, _ORDER).random() < 0.5 for index in indices]
        device = inputs[INPUT_IDS].device
        other = self._swapped.inputs(indices, device)
        width = max(inputs[name].shape[1] for inputs in (inputs, other) for name in inputs)
        chosen = torch.tensor(swap, device=device)
        mixed = {}
        for name, tensor in inputs.items():
            fill = self._swapped.encoder.pad_id if name == INPUT_IDS else 0
            both = [functional.pad(it, (0, width - it.shape[1]), value=fill) for it in (tensor, other[name])]
            mixed[name] = torch.where(chosen[:, None], both[1], both[0])
        return mixed, chosen.long()

    def measure(self) -> Measured:
        """Returns what masked words give, and ``sop_accuracy`` over every held-out pair in both orders."""
        right, count = 0, 0
        self.eval()
        with torch.inference_mode():
            for swapped, data in enumerate((self._held_out, self._held_out_swapped)):
                for start in range(0, len(data), _BATCH_SIZE):
                    rows = range(start, min(start + _BATCH_SIZE, len(data)))
                    logits = self.order(self.model(**data.inputs(rows)).last_hidden_state[:, 0])
                    right += int((logits.argmax(dim=-1) == swapped).sum())
                    count += len(rows)
        return {**super().measure(), "sop_accuracy": right / count}
