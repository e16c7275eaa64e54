"""Tiny random models of every family, with a real WordPiece tokenizer, made in a moment."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
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
from compressor.core.task import Task
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
PAIRS = (
    ("where is my order", "the order will arrive late"),
    ("i want a refund", "please refund the money to my account"),
    ("when will it arrive", "it is late now"),
    ("is the bill late", "i want to pay the bill now please cancel the order"),
    ("", "my card"),
)
LABELS = ("cancel", "refund", "track")


def tiny_tokenizer(*, roberta: bool = False, mask: bool = False) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer over WORDS and single letters; RoBERTa's order of specials puts pad at 1.

    With ``mask`` it has a mask token and some punctuation too.
    """
    specials = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    cls, sep, pad, unk = ("<s>", "</s>", "<pad>", "<unk>") if roberta else ("[CLS]", "[SEP]", "[PAD]", "[UNK]")
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*specials, *WORDS, *(x for x in letters if x not in WORDS), *(f"##{x}" for x in letters)]
    pieces += ["[MASK]", ",", "!"] if mask else []
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
        tokenizer_object=tokenizer, cls_token=cls, sep_token=sep, pad_token=pad, unk_token=unk, model_max_length=64,
        **({"mask_token": "[MASK]"} if mask else {}),
    )  # fmt: skip


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
    spread(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Checkpoint.open(folder)


TAGS = ("O", "B-ITEM", "I-ITEM", "B-TIME", "I-TIME")
TASK_CLASSES: dict[Task, tuple[type, dict[str, Any]]] = {
    "text-classification": (AutoModelForSequenceClassification, {}),
    "multi-label-classification": (
        AutoModelForSequenceClassification, {"problem_type": "multi_label_classification"},
    ),
    "regression": (AutoModelForSequenceClassification, {"num_labels": 1}),
    "token-classification": (AutoModelForTokenClassification, {"id2label": dict(enumerate(TAGS))}),
    "question-answering": (AutoModelForQuestionAnswering, {"num_labels": 2}),
    "sentence-embedding": (AutoModel, {}),
}  # fmt: skip


def tiny_task_checkpoint(
    task: Task, folder: Path, *, family: str = "bert", pooling: str = "mean", body: Checkpoint | None = None
) -> Checkpoint:
    """Saves a tiny model with the head of a task; an encoder with sentence-transformers files for embeddings.

    Weights are random, but for those of the same shape in ``body``.
    """
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer(roberta=family in {"roberta", "xlm-roberta"})
    config = tiny_config(family, layers=1 if body is None else 2, vocabulary=len(tokenizer))
    auto_class, changes = TASK_CLASSES[task]
    for name, value in changes.items():
        setattr(config, name, value)
    model = auto_class.from_config(config)
    spread(model)
    if body is not None:
        trained, own = load_compressed(body).state_dict(), model.state_dict()
        full = {name: name if name in trained else f"{model.base_model_prefix}.{name}" for name in own}
        kept = {name: trained[full[name]][: len(own[name])] for name in own if full[name] in trained}
        same = {name: tensor for name, tensor in kept.items() if tensor.shape == own[name].shape}
        model.load_state_dict({**own, **same})
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if task == "sentence-embedding":
        write_sentence_transformer(folder, pooling)
    return Checkpoint.open(folder)


def spread(model: torch.nn.Module) -> None:
    """Makes random weights larger, so that the outputs of different texts differ."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "embeddings" not in name:
                parameter.mul_(4.0)


def write_sentence_transformer(folder: Path, pooling: str = "mean", *more: str, max_tokens: int = 64) -> None:
    """Writes the files with which sentence-transformers pools an encoder's token vectors."""
    kinds = ("Transformer", "Pooling", "Normalize", *more)
    paths = ("", "1_Pooling", "2_Normalize", *(f"{place}_{kind}" for place, kind in enumerate(more, start=3)))
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for place, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": max_tokens}))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    settings = {name: mode == pooling for name, mode in modes.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **settings}))


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
