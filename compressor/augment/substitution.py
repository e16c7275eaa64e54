"""TinyBERT's data augmentation: words of a text are replaced by those a masked language model puts in their place."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer

from compressor.augment.config import AugmentConfig
from compressor.core.checkpoint import Checkpoint
from compressor.core.schema import Text
from compressor.data.batches import EncodedSplit, encode_split
from compressor.data.dataset import Split
from compressor.pretrain.encoders import MaskedLanguageModel
from compressor.pretrain.pieces import Pieces
from compressor.text import Encoded, Spans, load_tokenizer

_CHUNK = 64
"""Texts that are looked at together."""
_BATCH_SIZE = 64
"""Masked copies that are run together."""
_EXTRA = 2
"""Predictions looked at for each one kept: pieces that are no words of their own are passed over."""


@dataclass(frozen=True)
class Word:
    """A word of a text, and what may stand in its place."""

    part: int
    """0 for the first text of a pair or the only one, 1 for the second."""
    start: int
    end: int
    """First character of it, and the one after the last."""
    others: tuple[str, ...]


class Substitution:
    """Makes variants of texts.

    A word of several pieces is hidden by one mask: TinyBERT takes the neighbours of GloVe vectors there, which a masked
    language model does not bring.

    Args:
        model: predicts the words.
        checkpoint: where its tokenizer is.
        settings: how much is replaced.
        seed: with the position of a text, fixes its variants.
        max_tokens: longer texts are varied up to here.
    """

    def __init__(
        self, model: MaskedLanguageModel, checkpoint: Checkpoint, settings: AugmentConfig, *, seed: int, max_tokens: int
    ) -> None:
        self._model = model
        self._checkpoint = checkpoint
        self._settings = settings
        self._seed = seed
        self._max_tokens = max_tokens
        self._pieces = Pieces.load(checkpoint)
        self._tokenizer: Tokenizer = load_tokenizer(checkpoint.path)
        self._unknown = self._pieces.unknown_id
        self._spelled: dict[int, str | None] = {}

    def variants(self, texts: Iterable[Text], count: int) -> Iterator[Text]:
        """Yields variants of ``texts``, in their order, all different from each other and from their text.

        What is held in memory does not grow with the number of texts.

        Args:
            texts: any iterable; it is read a few texts at a time.
            count: how many texts there are, over which ``max_rows`` is spread.
        """
        most = min(self._settings.max_rows, count * self._settings.variants)
        source, done = iter(texts), 0
        while chunk := list(itertools.islice(source, _CHUNK)):
            wanted = [(place + 1) * most // count - place * most // count for place in range(done, done + len(chunk))]
            for place, (text, words) in enumerate(zip(chunk, self._words(chunk), strict=True)):
                yield from self._drawn(text, words, wanted[place], np.random.default_rng((self._seed, done + place)))
            done += len(chunk)

    def _drawn(self, text: Text, words: Sequence[Word], wanted: int, draw: np.random.Generator) -> Iterator[Text]:
        seen = {text}
        for _ in range(wanted):
            chosen = [word for word in words if draw.random() < self._settings.probability]
            made = _replaced(text, [(word, word.others[draw.integers(len(word.others))]) for word in chosen])
            if made not in seen:
                seen.add(made)
                yield made

    def _words(self, texts: Sequence[Text]) -> Iterator[list[Word]]:
        """Yields the words of each text for which the model knows others."""
        data = encode_split(self._checkpoint, Split(tuple(texts), (0,) * len(texts)), max_tokens=self._max_tokens)
        spans = data.encoder.spans(texts)
        found = [self._pieces.words(item.ids) for item in data.encoded]
        hidden = [
            (row, places) for row, words in enumerate(found) for places in words if self._is_word(data, row, places)
        ]
        predicted = self._predicted(data, hidden)
        kept: list[list[Word]] = [[] for _ in texts]
        for (row, places), ids in zip(hidden, predicted, strict=True):
            word = _located(texts[row], spans[row], places)
            if word is None:
                continue
            part, start, end = word
            own = _part(texts[row], part)[start:end]
            if not any(letter.isalnum() for letter in own) or self._is_cut(data.encoded[row], spans[row], places):
                continue
            others = (self._word(index) for index in ids)
            likely = [other for other in others if other is not None and other.casefold() != own.casefold()]
            if likely:
                kept[row].append(Word(part, start, end, tuple(likely[: self._settings.top_k])))
        yield from kept

    def _predicted(self, data: EncodedSplit, hidden: Sequence[tuple[int, list[int]]]) -> list[list[int]]:
        """Returns the likeliest ids in the place of each hidden word, the best first."""
        most = min(_EXTRA * self._settings.top_k, len(self._pieces.special))
        order = sorted(range(len(hidden)), key=lambda place: len(data.encoded[hidden[place][0]]))
        found: list[list[int]] = [[]] * len(hidden)
        with torch.inference_mode():
            for start in range(0, len(order), _BATCH_SIZE):
                part = order[start : start + _BATCH_SIZE]
                copies = [self._masked(data.encoded[hidden[place][0]], hidden[place][1]) for place in part]
                batch = EncodedSplit(data.encoder, tuple(copies), (0,) * len(copies), data.takes_token_types)
                inputs = batch.inputs(range(len(copies)))
                columns = torch.tensor([hidden[place][1][0] for place in part])
                states = self._model.encoder(**inputs).last_hidden_state[torch.arange(len(part)), columns]
                best = self._model.head(states)[:, : len(self._pieces.special)].topk(most, dim=-1).indices
                for place, ids in zip(part, best.tolist(), strict=True):
                    found[place] = ids
        return found

    def _masked(self, item: Encoded, places: Sequence[int]) -> Encoded:
        """Returns a copy with one mask token in place of a word's pieces."""
        first, after = places[0], places[-1] + 1
        ids = (*item.ids[:first], self._pieces.mask_id, *item.ids[after:])
        types = (*item.type_ids[: first + 1], *item.type_ids[after:])
        return Encoded(ids, types, item.truncated)

    def _is_word(self, data: EncodedSplit, row: int, places: Sequence[int]) -> bool:
        return not self._pieces.alone[data.encoded[row].ids[places[0]]]

    def _is_cut(self, item: Encoded, spans: Spans, places: Sequence[int]) -> bool:
        """Returns whether a word goes on in letters that the vocabulary cannot spell."""
        start, end = spans.offsets[places[0]][0], spans.offsets[places[-1]][1]
        before = [place for place in (places[0] - 1,) if place >= 0 and spans.offsets[place][1] == start]
        after = [place for place in (places[-1] + 1,) if place < len(item) and spans.offsets[place][0] == end]
        return any(item.ids[place] == self._unknown for place in (*before, *after))

    def _word(self, index: int) -> str | None:
        """Returns how a piece is spelled; None where it is no word of its own."""
        if index not in self._spelled:
            known = not (self._pieces.special[index] or self._pieces.alone[index]) and self._pieces.begins[index]
            spelled = self._tokenizer.decode([index]).strip() if known else ""
            self._spelled[index] = spelled if any(letter.isalnum() for letter in spelled) else None
        return self._spelled[index]


def _located(text: Text, spans: Spans, places: Sequence[int]) -> tuple[int, int, int] | None:
    """Returns part, start and end of a word in its text, without the space that some tokenizers count to it."""
    part = spans.sources[places[0]]
    if part is None:
        return None
    start, end = spans.offsets[places[0]][0], spans.offsets[places[-1]][1]
    word = _part(text, part)[start:end]
    start, end = start + len(word) - len(word.lstrip()), end - (len(word) - len(word.rstrip()))
    return (part, start, end) if end > start else None


def _part(text: Text, part: int) -> str:
    return text if isinstance(text, str) else text[part]


def _replaced(text: Text, edits: Sequence[tuple[Word, str]]) -> Text:
    parts = [text] if isinstance(text, str) else [*text]
    for word, other in reversed(edits):  # from the end, so that earlier places stay where they are
        parts[word.part] = parts[word.part][: word.start] + other + parts[word.part][word.end :]
    return parts[0] if isinstance(text, str) else (parts[0], parts[1])
