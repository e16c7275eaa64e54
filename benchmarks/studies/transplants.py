"""The real weights of all-MiniLM-L6-v2 in other families' classes, where their mathematics is the same.

What differs is bookkeeping: DistilBERT has no token types (their first row is added to the positions), RoBERTa counts
positions from 2 and pads with id 1 (rows 0 and 1 of the vocabulary change places), ELECTRA has other names only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from compressor.data.demo_model import demo_teacher

_DISTILBERT_NAMES = (
    ("bert.encoder.layer", "distilbert.transformer.layer"),
    ("bert.embeddings", "distilbert.embeddings"),
    ("attention.self.query", "attention.q_lin"),
    ("attention.self.key", "attention.k_lin"),
    ("attention.self.value", "attention.v_lin"),
    ("attention.output.dense", "attention.out_lin"),
    ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"),
    ("output.dense", "ffn.lin2"),
    ("output.LayerNorm", "output_layer_norm"),
)
_WORDS, _POSITIONS, _TYPES = (
    f"bert.embeddings.{table}_embeddings.weight" for table in ("word", "position", "token_type")
)
Weights = dict[str, torch.Tensor]


def _distilbert(weights: Weights, config: dict[str, Any]) -> tuple[Weights, Any]:
    from transformers import DistilBertConfig

    moved: Weights = {}
    for name, tensor in weights.items():
        for old, new in _DISTILBERT_NAMES:
            name = name.replace(old, new)
        moved[name] = tensor
    moved["distilbert.embeddings.position_embeddings.weight"] = weights[_POSITIONS] + weights[_TYPES][:1]
    made = DistilBertConfig(
        vocab_size=config["vocab_size"], dim=config["hidden_size"], n_layers=config["num_hidden_layers"],
        n_heads=config["num_attention_heads"], hidden_dim=config["intermediate_size"], pad_token_id=0,
        max_position_embeddings=config["max_position_embeddings"],
    )  # fmt: skip
    return moved, made


def _electra(weights: Weights, config: dict[str, Any]) -> tuple[Weights, Any]:
    from transformers import ElectraConfig

    made = ElectraConfig(**_shape(config), embedding_size=config["hidden_size"], pad_token_id=0)
    return {name.replace("bert.", "electra.", 1): tensor for name, tensor in weights.items()}, made


def _roberta(weights: Weights, config: dict[str, Any]) -> tuple[Weights, Any]:
    from transformers import RobertaConfig

    moved = {name.replace("bert.", "roberta.", 1): tensor for name, tensor in weights.items()}
    positions = weights[_POSITIONS]
    moved["roberta.embeddings.position_embeddings.weight"] = torch.cat([positions[:2], positions])
    order = [1, 0, *range(2, config["vocab_size"])]
    moved["roberta.embeddings.word_embeddings.weight"] = weights[_WORDS][order]
    shape = {**_shape(config), "max_position_embeddings": config["max_position_embeddings"] + 2}
    return moved, RobertaConfig(**shape, pad_token_id=1, bos_token_id=0, eos_token_id=2)


MOVES: dict[str, Callable[[Weights, dict[str, Any]], tuple[Weights, Any]]] = {
    "distilbert": _distilbert,
    "electra": _electra,
    "roberta": _roberta,
}
"""Family to how the weights are moved."""


def minilm_as(family: str, folder: Path) -> None:
    """Writes MiniLM as a classifier of ``family`` with a random head (real encoder, no trained task).

    Raises:
        ModelError: the package with the weights is not installed.
    """
    from transformers import AutoModelForSequenceClassification

    source = demo_teacher()
    stored = load_file(source / "model.safetensors")
    weights = {name if name.startswith("bert.") else f"bert.{name}": tensor for name, tensor in stored.items()}
    weights = {name: tensor for name, tensor in weights.items() if "pooler" not in name and "position_ids" not in name}
    moved, config = MOVES[family](weights, json.loads((source / "config.json").read_text(encoding="utf-8")))
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(config)
    found = model.load_state_dict(moved, strict=False)
    unfilled = [name for name in found.missing_keys if "classifier" not in name]
    left = [name for name in found.unexpected_keys if "token_type" not in name]
    if unfilled or left:
        raise RuntimeError(f"MiniLM does not fit {family}: no weights for {unfilled[:3]}, no place for {left[:3]}")
    model.save_pretrained(folder)
    _write_tokenizer(source, folder, swap_first=config.pad_token_id == 1)


def _shape(config: dict[str, Any]) -> dict[str, Any]:
    keys = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "type_vocab_size", "layer_norm_eps", "hidden_act")  # fmt: skip
    return {key: config[key] for key in keys}


def _write_tokenizer(source: Path, folder: Path, *, swap_first: bool) -> None:
    """Copies the tokenizer; with ``swap_first`` ids 0 and 1 change places, as the rows of the vocabulary have."""
    from transformers import PreTrainedTokenizerFast

    document = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    if swap_first:
        swapped = {0: 1, 1: 0}
        vocabulary = document["model"]["vocab"]
        document["model"]["vocab"] = {piece: swapped.get(index, index) for piece, index in vocabulary.items()}
        for token in document["added_tokens"]:
            token["id"] = swapped.get(token["id"], token["id"])
    document["padding"] = document["truncation"] = None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    PreTrainedTokenizerFast(
        tokenizer_file=str(path), cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]", unk_token="[UNK]",
        mask_token="[MASK]", model_max_length=512,
    ).save_pretrained(folder)  # fmt: skip
