"""Tiny random models of every family, with a real WordPiece tokenizer, made in a moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModelForSequenceClassification,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    MobileBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

from compressor.core.checkpoint import Checkpoint
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.models import load_compressed

WORDS = (
    *("the", "a", "my", "your", "card", "order", "money", "account", "please", "cancel", "refund", "where"),
    *("is", "when", "will", "it", "arrive", "i", "want", "to", "pay", "bill", "late", "now", "not"),
)
SENTENCES = (
    "where is my order",
    "please cancel the order now",
    "i want a refund",
    "",
    "when will my card arrive it is late " * 3,
)
FAMILIES = ("bert", "roberta", "xlm-roberta", "albert", "distilbert", "electra", "mobilebert", "deberta-v2")
LABELS = ("cancel", "refund", "track")


def tiny_tokenizer(*, roberta: bool = False) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer over WORDS and single letters; RoBERTa's order of specials puts pad at 1."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    cls, sep, pad, unk = ("<s>", "</s>", "<pad>", "<unk>") if roberta else ("[CLS]", "[SEP]", "[PAD]", "[UNK]")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*specials, *WORDS, *(x for x in letters if x not in WORDS), *(f"##{x}" for x in letters)]
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unk))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, cls_token=cls, sep_token=sep, pad_token=pad, unk_token=unk, model_max_length=64
    )


def tiny_config(family: str, *, layers: int = 2, vocabulary: int = 100) -> Any:
    common: dict[str, Any] = {
        "vocab_size": vocabulary,
        "id2label": dict(enumerate(LABELS)),
        "label2id": {n: i for i, n in enumerate(LABELS)},
    }
    bert = {
        "hidden_size": 32,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
        **common,
    }
    makers = {
        "bert": lambda: BertConfig(pad_token_id=0, **bert),
        "electra": lambda: ElectraConfig(pad_token_id=0, embedding_size=16, **bert),
        "roberta": lambda: RobertaConfig(pad_token_id=1, type_vocab_size=1, **{**bert, "max_position_embeddings": 66}),
        "xlm-roberta": lambda: XLMRobertaConfig(
            pad_token_id=1, type_vocab_size=1, **{**bert, "max_position_embeddings": 66}
        ),
        "albert": lambda: AlbertConfig(pad_token_id=0, embedding_size=16, **bert),
        "distilbert": lambda: DistilBertConfig(
            pad_token_id=0, dim=32, n_layers=layers, n_heads=4, hidden_dim=64, max_position_embeddings=64, **common
        ),
        "mobilebert": lambda: MobileBertConfig(
            pad_token_id=0, embedding_size=16, intra_bottleneck_size=16, num_feedforward_networks=2, **bert
        ),
        "deberta-v2": lambda: DebertaV2Config(
            pad_token_id=0,
            relative_attention=True,
            position_buckets=16,
            max_relative_positions=-1,
            pos_att_type=["p2c", "c2p"],
            norm_rel_ebd="layer_norm",
            position_biased_input=False,
            share_att_key=True,
            type_vocab_size=0,
            pooler_hidden_size=32,
            **bert,
        ),
    }
    return makers[family]()


def tiny_checkpoint(family: str, folder: Path, *, layers: int = 2, seed: int = 0) -> Checkpoint:
    """Saves a tiny random classifier of ``family`` with its tokenizer; its weights make the logits spread."""
    torch.manual_seed(seed)
    tokenizer = tiny_tokenizer(roberta=family in {"roberta", "xlm-roberta"})
    model = AutoModelForSequenceClassification.from_config(
        tiny_config(family, layers=layers, vocabulary=len(tokenizer))
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embeddings" not in name:
                parameter.mul_(4.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint.open(folder)


def keyword_split(count: int, *, seed: int) -> Split:
    """Short texts with one of three keywords among other words; the keyword is the label."""
    draw = random.Random(seed)
    keywords = ("cancel", "refund", "order")
    others = [word for word in WORDS if word not in keywords]
    labels = tuple(draw.randrange(3) for _ in range(count))
    texts = []
    for label in labels:
        words = draw.sample(others, draw.randint(2, 6))
        words.insert(draw.randrange(len(words) + 1), keywords[label])
        texts.append(" ".join(words))
    return Split(tuple(texts), labels)


def trained_checkpoint(folder: Path, *, steps: int = 60) -> Checkpoint:
    """Saves a tiny BERT that has learnt :func:`keyword_split`, in a second or two."""
    checkpoint = tiny_checkpoint("bert", folder)
    model = load_compressed(folder)
    data = encode_split(checkpoint, keyword_split(32 * steps, seed=1), max_tokens=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(steps):
        rows = range(32 * step, 32 * (step + 1))
        labels = torch.tensor([data.labels[row] for row in rows])
        loss = torch.nn.functional.cross_entropy(model(**data.inputs(rows)).logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    return Checkpoint.open(folder)
