"""From a text to padded token ids, with the ``tokenizers`` library alone: one code for checkpoints and artifacts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from compressor.core.errors import ModelError
from compressor.core.schema import Text

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
TOKEN_TYPE_IDS = "token_type_ids"
CANONICAL_INPUTS = (INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS)

Batch = dict[str, np.ndarray]
"""Canonical input name to an int64 array of shape (batch, tokens)."""


@dataclass(frozen=True)
class Encoded:
    """One sentence's token ids, not padded."""

    ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    truncated: bool

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Spans:
    """Where in its text each token of :meth:`SentenceEncoder.encode` stands."""

    offsets: tuple[tuple[int, int], ...]
    """First character and the one after the last, in the text that the token is from."""
    sources: tuple[int | None, ...]
    """0 for the first text of a pair (or the only one), 1 for the second, None for a special token."""
    words: tuple[int | None, ...]
    """Index of the word, as the tokenizer splits words; None for a special token."""


class SentenceEncoder:
    """Tokenises with truncation to ``max_tokens``; padding is a separate, explicit step.

    Args:
        tokenizer: a configured ``tokenizers.Tokenizer``.
        max_tokens: the most tokens the model takes, specials included.
        pad_id: id that fills the rest of a padded row.
    """

    def __init__(self, tokenizer: Tokenizer, *, max_tokens: int, pad_id: int) -> None:
        self._tokenizer = uncut(tokenizer)
        self._truncating = Tokenizer.from_str(tokenizer.to_str())
        self._truncating.enable_truncation(max_tokens)
        self.max_tokens = max_tokens
        self.pad_id = pad_id

    @classmethod
    def load(cls, folder: Path, *, max_tokens: int, pad_id: int | None = None) -> SentenceEncoder:
        """Reads ``tokenizer.json`` from a checkpoint or artifact folder.

        Raises:
            ModelError: as :func:`load_tokenizer`.
        """
        tokenizer = load_tokenizer(folder)
        return cls(tokenizer, max_tokens=max_tokens, pad_id=_pad_id(folder, tokenizer) if pad_id is None else pad_id)

    @property
    def unknown_id(self) -> int | None:
        """Id that stands for text the vocabulary cannot spell; None where it spells everything."""
        for piece in ("[UNK]", "<unk>"):
            if (found := self._tokenizer.token_to_id(piece)) is not None:
                return int(found)
        return None

    def encode(self, texts: Sequence[Text]) -> list[Encoded]:
        """Tokenises texts or pairs; an empty text becomes its special tokens only."""
        full = self._tokenizer.encode_batch(list(texts))
        kept = self._truncating.encode_batch(list(texts))
        return [
            Encoded(tuple(b.ids), tuple(b.type_ids), len(a.ids) > len(b.ids)) for a, b in zip(full, kept, strict=True)
        ]

    def spans(self, texts: Sequence[Text]) -> list[Spans]:
        """Returns the places of the tokens that :meth:`encode` gives, cut where it cuts."""
        found = self._truncating.encode_batch(list(texts))
        return [Spans(tuple(item.offsets), tuple(item.sequence_ids), tuple(item.word_ids)) for item in found]

    def pad(self, encoded: Sequence[Encoded], length: int | None = None) -> Batch:
        """Returns a batch padded to ``length`` tokens, or to the longest of ``encoded``.

        Raises:
            ValueError: a sentence is longer than ``length``.
        """
        width = max(map(len, encoded)) if length is None else length
        ids = np.full((len(encoded), width), self.pad_id, dtype=np.int64)
        mask = np.zeros((len(encoded), width), dtype=np.int64)
        types = np.zeros((len(encoded), width), dtype=np.int64)
        for row, item in enumerate(encoded):
            if len(item) > width:
                raise ValueError(f"a sentence of {len(item)} tokens does not fit {width}")
            ids[row, : len(item)] = item.ids
            mask[row, : len(item)] = 1
            types[row, : len(item)] = item.type_ids
        return {INPUT_IDS: ids, ATTENTION_MASK: mask, TOKEN_TYPE_IDS: types}


def load_tokenizer(folder: Path) -> Tokenizer:
    """Reads ``tokenizer.json`` from a checkpoint or artifact folder, as :func:`uncut`.

    Raises:
        ModelError: there is none (slow tokenizers have to be converted first), or it is damaged.
    """
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelError(
            f"{folder} holds no tokenizer.json; expected a fast tokenizer beside the weights",
            remedy="load it with transformers.AutoTokenizer and save it there with save_pretrained()",
        )
    try:
        return uncut(Tokenizer.from_file(str(file)))
    except Exception as error:  # the library raises plain Exception for whatever it cannot read
        raise ModelError(
            f"{file} is not a readable tokenizer: {error}",
            remedy="fetch the model again, or save the tokenizer there again with save_pretrained()",
        ) from error


def uncut(tokenizer: Tokenizer) -> Tokenizer:
    """Takes away the padding and the truncation that a file may state (sentence-transformers: 128 both); returns it."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def bucket(tokens: int, lengths: Sequence[int]) -> int:
    """Returns the smallest length that holds ``tokens``; ``tokens`` itself where ``lengths`` is empty (dynamic).

    Raises:
        ValueError: no bucket is long enough.
    """
    if not lengths:
        return tokens
    for length in sorted(lengths):
        if tokens <= length:
            return length
    raise ValueError(f"{tokens} tokens fit none of the lengths {sorted(lengths)}")


def _pad_id(folder: Path, tokenizer: Tokenizer) -> int:
    config = folder / "config.json"
    if config.is_file():
        value = json.loads(config.read_text(encoding="utf-8")).get("pad_token_id")
        if value is not None:
            return int(value)
    for piece in ("[PAD]", "<pad>"):
        if (found := tokenizer.token_to_id(piece)) is not None:
            return int(found)
    return 0
