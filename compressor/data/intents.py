"""The demo's text: customer-service requests of ten intents, generated from a seed, that keywords alone do not solve.

Three things separate a model that reads from one that counts words: validation and test use phrasings, items and frames
that training never shows; a good part of the sentences name two intents and mean one ("I do not want to return it, I
want to …"); and words are misspelt.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from compressor.core.folders import write_text
from compressor.data import intent_phrases as phrases
from compressor.data.dataset import Split, TextDataset

_SIZES = {"train": 3000, "validation": 300, "test": 500}
_CONTRAST_SHARE = 0.35
_STATEMENT_SHARE = 0.3
_TYPO_SHARE = 0.2
_HELD_OUT_SHARE = 0.25
"""Share of validation and test sentences whose phrasing is held out; in the rest only the combination is new."""


def generate_intents(seed: int = 0) -> TextDataset:
    """Returns the data set; the same seed gives the same sentences, and no sentence occurs twice in all splits."""
    rng = random.Random(seed)
    names = tuple(sorted(phrases.INTENTS))
    seen: set[str] = set()
    splits = {}
    for split, size in _SIZES.items():
        rows: list[tuple[str, int]] = []
        while len(rows) < size:
            label = len(rows) % len(names)
            sentence = _sentence(rng, names[label], held_out=split != "train" and rng.random() < _HELD_OUT_SHARE)
            if (key := sentence.casefold()) not in seen:
                seen.add(key)
                rows.append((sentence, label))
        rng.shuffle(rows)
        splits[split] = Split(tuple(text for text, _ in rows), tuple(label for _, label in rows))
    sentences = tuple(splits["test"].texts)
    return TextDataset(names, splits["train"], splits["validation"], splits["test"], sentences=sentences)


def write_intents(folder: Path, seed: int = 0) -> None:
    """Writes ``train.tsv``, ``validation.tsv`` and ``test.tsv`` into ``folder``, made where it is missing."""
    data = generate_intents(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in data.splits.items():
        rows = [f"{text}\t{data.label_names[label]}" for text, label in zip(split.texts, split.labels, strict=True)]
        write_text(folder / f"{name}.tsv", "\n".join(["text\tlabel", *rows]) + "\n")


def _sentence(rng: random.Random, intent: str, *, held_out: bool) -> str:
    core = _contrast(rng, intent, held_out) if rng.random() < _CONTRAST_SHARE else _plain(rng, intent, held_out)
    core = core.format(
        item=rng.choice(phrases.HELD_OUT_ITEMS if held_out else phrases.ITEMS),
        day=rng.choice(phrases.DAYS),
        number=rng.randrange(1000, 99999),
    )
    text = rng.choice(phrases.OPENERS) + core + rng.choice(phrases.CLOSERS)
    text = rng.choice((text, text.lower(), text[0].upper() + text[1:])) + rng.choice(("", "", ".", "?", "!", "!!"))
    return _typo(rng, text) if rng.random() < _TYPO_SHARE else text


def _plain(rng: random.Random, intent: str, held_out: bool) -> str:
    wording = phrases.INTENTS[intent]
    if rng.random() < _STATEMENT_SHARE:
        return rng.choice(wording.held_out_statements if held_out else wording.statements)
    frames = phrases.FRAMES + phrases.HELD_OUT_FRAMES if held_out else phrases.FRAMES
    return rng.choice(frames).replace("{action}", _action(rng, intent, held_out))


def _contrast(rng: random.Random, intent: str, held_out: bool) -> str:
    other = rng.choice([name for name in phrases.INTENTS if name != intent])
    frames: Sequence[str] = phrases.CONTRASTS + phrases.HELD_OUT_CONTRASTS if held_out else phrases.CONTRASTS
    frame = rng.choice(frames).replace("{action}", _action(rng, intent, held_out))
    return frame.replace("{other}", _action(rng, other, held_out))


def _action(rng: random.Random, intent: str, held_out: bool) -> str:
    wording = phrases.INTENTS[intent]
    return rng.choice(wording.held_out_actions if held_out else wording.actions)


def _typo(rng: random.Random, text: str) -> str:
    """Swaps, drops or doubles one inner letter of a word of five letters or more."""
    words = text.split(" ")
    places = [index for index, word in enumerate(words) if len(word) >= 5 and word.isalpha()]
    if not places:
        return text
    index = rng.choice(places)
    word, at = words[index], rng.randrange(1, len(words[index]) - 2)
    words[index] = rng.choice(
        (word[:at] + word[at + 1] + word[at] + word[at + 2 :], word[:at] + word[at + 1 :], word[: at + 1] + word[at:])
    )
    return " ".join(words)
