"""What masking must know of a vocabulary: which pieces are special, and where words begin."""

from __future__ import annotations

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.text import load_tokenizer

_MARKERS = ("▁", "Ġ")
"""First character of a piece that begins a word: SentencePiece's, and that of byte-level BPE."""


@dataclass(frozen=True)
class Pieces:
    """A vocabulary's pieces by id."""

    mask_id: int
    unknown_id: int | None
    """Stands for what the vocabulary cannot spell; a special token too."""
    special: np.ndarray
    """Whether a piece is a special token; shape (vocabulary,)."""
    begins: np.ndarray
    """Whether a piece begins a word wherever it stands; shape (vocabulary,)."""
    alone: np.ndarray
    """Whether a piece is a word of its own (punctuation); shape (vocabulary,)."""
    ordinary: np.ndarray
    """Ids that a random replacement is drawn from: all but special tokens."""

    @classmethod
    def load(cls, checkpoint: Checkpoint) -> Pieces:
        """Reads the tokenizer of a checkpoint.

        Raises:
            ModelError: no ``tokenizer.json``, or a tokenizer without a mask token.
        """
        from transformers import AutoTokenizer

        tokenizer = load_tokenizer(checkpoint.path)
        named = AutoTokenizer.from_pretrained(checkpoint.path, local_files_only=True, trust_remote_code=False)
        if named.mask_token_id is None:
            raise ModelError(
                f"the tokenizer of {checkpoint.path} has no mask token; expected one, such as [MASK] or <mask>",
                remedy="use a model that was pretrained with masked words, or add the token and resize its embeddings",
            )
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        size = max(vocabulary.values()) + 1
        added = tokenizer.get_added_tokens_decoder()
        special = np.zeros(size, dtype=bool)
        special[[*named.all_special_ids, *(index for index, token in added.items() if token.special)]] = True
        begins, alone = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
        first = _word_test(tokenizer, vocabulary)
        for piece, index in vocabulary.items():
            begins[index] = first(piece) or index in added
            bare = piece.lstrip("".join(_MARKERS))
            alone[index] = bool(bare) and all(letter in string.punctuation for letter in bare)
        present = np.zeros(size, dtype=bool)
        present[[*vocabulary.values()]] = True
        return cls(
            mask_id=int(named.mask_token_id),
            unknown_id=named.unk_token_id,
            special=special,
            begins=begins,
            alone=alone,
            ordinary=np.flatnonzero(present & ~special),
        )

    def words(self, ids: Sequence[int] | np.ndarray) -> list[list[int]]:
        """Returns the places of each word's tokens; special tokens belong to none."""
        found: list[list[int]] = []
        closed = True
        for place, index in enumerate(ids):
            if self.special[index]:
                closed = True
                continue
            if closed or self.begins[index] or self.alone[index]:
                found.append([place])
            else:
                found[-1].append(place)
            closed = bool(self.alone[index])
        return found


class _word_test:  # noqa: N801  a function with a choice made once
    """Tells whether a piece begins a word, in the vocabulary's own way of saying so."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: dict[str, int]) -> None:
        model = json.loads(tokenizer.to_str())["model"]
        counts = {marker: sum(piece.startswith(marker) for piece in vocabulary) for marker in _MARKERS}
        self._marker = max(_MARKERS, key=lambda marker: counts[marker])
        self._prefix = model.get("continuing_subword_prefix") if model["type"] == "WordPiece" else None
        self._none = self._prefix is None and not any(counts.values())

    def __call__(self, piece: str) -> bool:
        if self._prefix is not None:
            return not piece.startswith(self._prefix)
        # A vocabulary that marks nothing has one word a piece.
        return self._none or piece.startswith(self._marker)
