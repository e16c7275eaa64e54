"""Tokenizers of each kind and of any size: WordPiece, byte-level BPE and Unigram, filled up with unused pieces.

The pieces of the texts that are tokenised stand last, so that the far end of an embedding table is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"-/&%$()"
_LEARNT_PIECES = 2000
"""Of byte-pair merges; the texts need no more."""


@dataclass(frozen=True, kw_only=True)
class Specials:
    """Special tokens and the four with which the family's vocabulary begins, in the order of their ids."""

    cls: str
    sep: str
    pad: str
    unk: str
    mask: str
    first: tuple[str, str, str, str]


def word_pieces(size: int, specials: Specials, texts: tuple[str, ...]) -> Tokenizer:
    """Returns a lower-casing WordPiece tokenizer, as BERT's."""
    letters = [*_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    splitter, normalizer = pre_tokenizers.BertPreTokenizer(), normalizers.BertNormalizer(lowercase=True)
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    pieces = _filled([*specials.first, specials.mask, *letters], sorted(words - set(letters)), size)
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token=specials.unk))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.decoder = decoders.WordPiece()
    return _with_template(tokenizer, specials, second_type=1)


def byte_pairs(size: int, specials: Specials, texts: tuple[str, ...]) -> Tokenizer:
    """Returns a byte-level BPE tokenizer, as RoBERTa's."""
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=_LEARNT_PIECES, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    learnt.train_from_iterator(texts, trainer)
    model = json.loads(learnt.to_str())["model"]
    pieces = _filled([*specials.first], [*sorted(model["vocab"], key=model["vocab"].get), specials.mask], size)
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, merges, unk_token=specials.unk))
    tokenizer.pre_tokenizer, tokenizer.decoder = learnt.pre_tokenizer, decoders.ByteLevel()
    return _with_template(tokenizer, specials, second_type=0)


def unigram(size: int, specials: Specials, texts: tuple[str, ...]) -> Tokenizer:
    """Returns a Unigram tokenizer over words that begin with a mark, as SentencePiece's."""
    splitter, normalizer = pre_tokenizers.Metaspace(), normalizers.Lowercase()
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    letters = ["▁", *_LETTERS]
    pieces = _filled([*specials.first, specials.mask, *letters], sorted(words - set(letters)), size)
    scores = [-20.0 if piece in letters else -10.0 for piece in pieces]
    model = models.Unigram(list(zip(pieces, scores, strict=True)), unk_id=pieces.index(specials.unk))
    tokenizer = Tokenizer(model)
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, splitter, decoders.Metaspace()
    return _with_template(tokenizer, specials, second_type=0 if specials.cls == "<s>" else 1)


def _filled(first: list[str], last: list[str], size: int) -> list[str]:
    """Returns ``size`` pieces; those between the first and the last occur in no text."""
    unused = size - len(first) - len(last)
    if unused < 0:
        raise ValueError(f"{len(first) + len(last)} pieces do not fit a vocabulary of {size}")
    return [*first, *(f"<unused-{number}>" for number in range(unused)), *last]


def _with_template(tokenizer: Tokenizer, specials: Specials, *, second_type: int) -> Tokenizer:
    cls, sep = specials.cls, specials.sep
    tokenizer.add_special_tokens([*specials.first, specials.mask])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:{second_type} {sep}:{second_type}",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (cls, sep)],
    )
    return tokenizer
