"""Tiny models with a real tokenizer of each kind, trained in a moment on more text than a task will use."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from compressor.core.checkpoint import Checkpoint
from tests.models import WORDS, spread, tiny_config

KINDS = {"WordPiece": "bert", "BPE": "roberta", "Unigram": "xlm-roberta"}
OTHERS = ("weather", "tomorrow", "lisbon", "concert", "strawberry", "münchen", "привет", "мир", "日本語", "sunflower")
"""Words that no test task uses."""


def corpus(*, seed: int = 0, count: int = 400) -> list[str]:
    """Sentences of the task's words and of others."""
    draw = random.Random(seed)
    return [" ".join(draw.choices((*WORDS, *OTHERS), k=draw.randint(2, 9))) for _ in range(count)]


def trained_tokenizer(kind: str, *, pieces: int = 600) -> PreTrainedTokenizerFast:
    """A tokenizer of that kind as BERT, RoBERTa or XLM-RoBERTa have it, with an added token behind the vocabulary."""
    if kind == "WordPiece":
        names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=pieces, special_tokens=names, show_progress=False)
        roles = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
    else:
        names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        roles = {"pad": 1, "unk": 3, "cls": 0, "sep": 2, "mask": 4}
        if kind == "BPE":
            made = Tokenizer(models.BPE())
            made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            made.decoder = decoders.ByteLevel()
            trainer = trainers.BpeTrainer(
                vocab_size=pieces, special_tokens=names, show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            )  # fmt: skip
        else:
            made = Tokenizer(models.Unigram())
            made.pre_tokenizer = pre_tokenizers.Metaspace()
            made.decoder = decoders.Metaspace()
            trainer = trainers.UnigramTrainer(
                vocab_size=pieces, special_tokens=names, show_progress=False, unk_token="<unk>"
            )
    made.train_from_iterator(corpus(seed=1), trainer)
    cls, sep = names[roles["cls"]], names[roles["sep"]]
    if kind == "BPE":
        made.post_processor = processors.RobertaProcessing((sep, roles["sep"]), (cls, roles["cls"]))
    else:
        made.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B {sep}",
            special_tokens=[(cls, roles["cls"]), (sep, roles["sep"])],
        )  # fmt: skip
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, model_max_length=64, **{f"{role}_token": names[at] for role, at in roles.items()}
    )
    fast.add_tokens(["<order>"], special_tokens=True)
    return fast


def trimmable(kind: str, folder: Path) -> Checkpoint:
    """A tiny random classifier of the family that has such a tokenizer, with a few rows more than pieces."""
    torch.manual_seed(0)
    tokenizer = trained_tokenizer(kind)
    model = AutoModelForSequenceClassification.from_config(tiny_config(KINDS[kind], vocabulary=len(tokenizer) + 3))
    spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint.open(folder)
