"""Tiny models whose tokenizers have a mask token, of every family and kind of tokenizer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from compressor.core.checkpoint import Checkpoint
from compressor.data.batches import EncodedSplit, encode_split
from compressor.data.dataset import Split, TextDataset
from tests.compressor.tiny_data import tiny_dataset
from tests.models import spread, tiny_config, tiny_tokenizer
from tests.trimmable import trained_tokenizer

KIND_OF = {"roberta": "BPE", "xlm-roberta": "Unigram", "albert": "Unigram", "deberta-v2": "Unigram"}
CLASSES = {
    "classifier": AutoModelForSequenceClassification,
    "encoder": AutoModel,
    "masked": AutoModelForMaskedLM,
}


def maskable(folder: Path, *, family: str = "bert", form: str = "classifier", layers: int = 2) -> Checkpoint:
    """Saves a tiny random model of a family as a classifier, a bare encoder or a masked language model."""
    torch.manual_seed(0)
    tokenizer = trained_tokenizer(KIND_OF[family], pieces=300) if family in KIND_OF else tiny_tokenizer(mask=True)
    model = CLASSES[form].from_config(tiny_config(family, layers=layers, vocabulary=len(tokenizer)))
    spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint.open(folder)


def patterned(*, train: int = 96, rest: int = 12) -> TextDataset:
    """Texts in which every word follows from the one before it, so that a hidden one can be learnt."""
    cycle = ("where", "is", "my", "order", "please", "cancel", "the", "account", "when", "will", "it", "arrive")

    def texts(first: int, count: int) -> Split:
        starts = [4 * (row % 3) for row in range(first, first + count)]
        rows = [" ".join(cycle[(start + place) % 12] for place in range(8)) for start in starts]
        return Split(tuple(rows), tuple(row % 3 for row in range(count)))

    return replace(tiny_dataset(), train=texts(0, train), validation=texts(0, rest))


def encoded(checkpoint: Checkpoint, texts: Any, max_tokens: int = 64) -> EncodedSplit:
    return encode_split(checkpoint, Split(tuple(texts), (0,) * len(texts)), max_tokens=max_tokens)
