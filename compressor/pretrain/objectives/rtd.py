"""Replaced token detection: which tokens did a small generator make up? (ELECTRA, Clark et al. 2020)"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from compressor.data.batches import EncodedSplit
from compressor.families import adapter_for
from compressor.pretrain.config import GeneratorSettings
from compressor.pretrain.heads import MaskedHead
from compressor.pretrain.masking import MaskedBatch, Masks
from compressor.pretrain.objectives.base import Measured, PretrainObjective
from compressor.pretrain.objectives.mlm import cross_entropy_of
from compressor.text import ATTENTION_MASK, INPUT_IDS
from compressor.train.objective import Inputs

_HELD_OUT_EPOCH = 0
_BATCH_SIZE = 32


class Generator(nn.Module):
    """A narrow ELECTRA that predicts masked words through the word embeddings of the model it works for.

    ELECTRA's projection behind the embeddings lets them be shared at any width.

    Args:
        config: the transformers config of the model whose tokens are replaced.
        table: its word embeddings.
        settings: width and depth.
    """

    def __init__(self, config: Any, table: nn.Embedding, settings: GeneratorSettings) -> None:
        super().__init__()
        from transformers import ElectraModel

        made = generator_config(config, table, settings)
        self.encoder: nn.Module = ElectraModel(made)
        # The words come as vectors from the shared table.
        self.encoder.embeddings.word_embeddings = nn.Identity()
        self.head = MaskedHead(made, table).tie()
        self._table = (table,)

    def forward(self, batch: MaskedBatch) -> torch.Tensor:
        """Returns logits (hidden, vocabulary) for the hidden tokens of a batch."""
        vectors = self._table[0](batch.inputs[INPUT_IDS])
        rest = {name: tensor for name, tensor in batch.inputs.items() if name != INPUT_IDS}
        states = self.encoder(inputs_embeds=vectors, **rest).last_hidden_state
        logits: torch.Tensor = self.head(states[batch.rows, batch.columns]).float()
        return logits


def generator_config(config: Any, table: nn.Embedding, settings: GeneratorSettings) -> Any:
    """Returns the ELECTRA config of the generator: a share of a model's width, heads and feed-forward width."""
    from transformers import ElectraConfig

    adapter = adapter_for(config)
    heads = max(1, round(settings.width * adapter.num_heads(config)))
    size = max(1, adapter.hidden_size(config) // adapter.num_heads(config))
    types = int(getattr(config, "type_vocab_size", 0) or 0)
    return ElectraConfig(
        vocab_size=table.num_embeddings,
        embedding_size=table.embedding_dim,
        hidden_size=heads * size,
        num_hidden_layers=settings.layers or adapter.num_layers(config),
        num_attention_heads=heads,
        intermediate_size=max(1, round(settings.width * adapter.intermediate_size(config))),
        max_position_embeddings=adapter.max_tokens(config),
        type_vocab_size=max(1, types),
        pad_token_id=config.pad_token_id,
    )


def sampled(logits: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """Returns one id for each row of logits (tokens, vocabulary), drawn from its softmax by a uniform number each."""
    sums = torch.softmax(logits.cpu().double(), dim=-1).cumsum(dim=-1)
    # Scaled by the last sum, which rounding keeps from being one, so that no draw falls beyond the vocabulary.
    found = torch.searchsorted(sums, (draws * sums[:, -1])[:, None], right=True)[:, 0]
    return found.clamp(max=logits.shape[1] - 1).to(logits.device)


@dataclass(frozen=True)
class Corrupted:
    """A batch some of whose tokens were replaced."""

    inputs: Inputs
    replaced: torch.Tensor
    """1 where a token is not what stood there, 0 where it is, sampled or not; float of shape (batch, tokens)."""


def corrupted(batch: MaskedBatch, guesses: torch.Tensor) -> Corrupted:
    """Puts the generator's guesses where tokens were hidden; a guess that is right counts as the original."""
    ids = batch.inputs[INPUT_IDS].clone()
    replaced = torch.zeros(ids.shape, device=ids.device)
    ids[batch.rows, batch.columns] = guesses
    replaced[batch.rows, batch.columns] = (guesses != batch.targets).float()
    return Corrupted({**batch.inputs, INPUT_IDS: ids}, replaced)


class ReplacedTokens(PretrainObjective):
    """The losses ``generator`` (its masked words) and ``rtd`` (cross-entropy of replaced or not, every real token).

    Args:
        encoder: what is trained, the discriminator.
        generator: made for it; trains along and is thrown away.
        masks: hide with the mask token alone, as the paper does.
        data: the training split.
        width: of the encoder's states.
        weight: of ``rtd``.
        held_out: texts to be measured on.
        held_out_tokens: most tokens of them that are looked at, to the end of the last text.
    """

    def __init__(
        self,
        encoder: nn.Module,
        generator: Generator,
        masks: Masks,
        *,
        data: EncodedSplit,
        width: int,
        weight: float,
        held_out: EncodedSplit,
        held_out_tokens: int,
    ) -> None:
        super().__init__(encoder, {"generator": 1.0, "rtd": weight})
        self.generator = generator
        self.detector = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1))
        self._masks = masks
        self._data = data
        self._held_out = held_out
        ends = itertools.accumulate(held_out.lengths)
        self._held_out_texts = max(1, sum(end <= held_out_tokens for end in ends))

    def forward(self, inputs: Inputs, labels: torch.Tensor, indices: Sequence[int]) -> dict[str, torch.Tensor]:
        """Returns both losses; no gradient flows through the sampling (section 2)."""
        batch = self._masks.hide(inputs, indices, self.epoch)
        guesses = self.generator(batch)
        made = corrupted(batch, sampled(guesses.detach(), batch.draws))
        found, wanted = self._detect(made)
        return {
            "generator": cross_entropy_of(guesses, batch.targets),
            "rtd": functional.binary_cross_entropy_with_logits(found, wanted),
        }

    def units(self, indices: Sequence[int], lengths: Sequence[int]) -> dict[str, float]:
        """Returns the numbers of hidden tokens and of all tokens; see the base class."""
        hidden = self._masks.count(self._data.inputs(indices), indices, self.epoch)
        return {"generator": hidden, "rtd": float(sum(lengths))}

    def measure(self) -> Measured:
        """Returns, over real tokens, the share told right, the share replaced, and how many of those were found."""
        right = replaced = caught = tokens = 0
        self.eval()
        with torch.inference_mode():
            for start in range(0, self._held_out_texts, _BATCH_SIZE):
                rows = range(start, min(start + _BATCH_SIZE, self._held_out_texts))
                batch = self._masks.hide(self._held_out.inputs(rows), rows, _HELD_OUT_EPOCH)
                found, wanted = self._detect(corrupted(batch, sampled(self.generator(batch), batch.draws)))
                said, wrong = found > 0, wanted > 0
                right += int((said == wrong).sum())
                caught += int((said & wrong).sum())
                replaced += int(wrong.sum())
                tokens += len(wanted)
        return {
            "tokens": tokens,
            "rtd_accuracy": right / max(1, tokens),
            "replaced_share": replaced / max(1, tokens),
            "replaced_found": caught / max(1, replaced),
        }

    def _detect(self, made: Corrupted) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns logits and truth of all tokens but padding."""
        real = made.inputs[ATTENTION_MASK].bool()
        states = self.model(**made.inputs).last_hidden_state
        return self.detector(states[real])[:, 0].float(), made.replaced[real]
