"""A BERT whose layers are shared in equal runs is an ALBERT, but for the projection behind ALBERT's embeddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from compressor.core.errors import RecipeError
from compressor.families import ADAPTERS, adapter_for
from compressor.shapes import CLASSIFIER, Shape, build, plain_shape
from compressor.share.grouping import contiguous

_RENAMED = {
    "attention.self.query": "attention.query", "attention.self.key": "attention.key",
    "attention.self.value": "attention.value", "attention.output.dense": "attention.dense",
    "attention.output.LayerNorm": "attention.LayerNorm", "intermediate.dense": "ffn", "output.dense": "ffn_output",
    "output.LayerNorm": "full_layer_layer_norm",
}  # fmt: skip
"""Inside one layer, BERT's names to ALBERT's."""


def albert_config(config: Any, shape: Shape) -> Any:
    """Returns the config of the ALBERT that computes what a shared BERT does.

    Its embeddings are as wide as its layers, and the projection between them is the identity: hidden size squared, plus
    a bias, more parameters, for which transformers loads the folder alone.

    Raises:
        RecipeError: not a BERT, or one that ALBERT cannot say (uneven or factorised, groups of different sizes).
    """
    from transformers import AlbertConfig

    depth, groups = len(shape.applied), len(shape.layers)
    plain = plain_shape(config)
    even = depth % groups == 0 and (shape.groups or tuple(range(depth))) == contiguous(depth, groups)
    same = all(layer == shape.layers[0] for layer in shape.layers) and shape.layers[0].heads == plain.layers[0].heads
    if adapter_for(config).model_type != "bert" or not even or not same or shape.embedding_rank is not None:
        raise RecipeError(
            "only a BERT whose layers are all alike and shared in runs of one size is also an ALBERT; this one is not",
            remedy="leave 'as_albert' out: load_compressed rebuilds any sharing",
        )
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
            "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
            "initializer_range", "layer_norm_eps", "pad_token_id", "id2label", "label2id", "problem_type")  # fmt: skip
    dropout = config.classifier_dropout if config.classifier_dropout is not None else config.hidden_dropout_prob
    return AlbertConfig(
        **{key: getattr(config, key) for key in kept},
        intermediate_size=shape.layers[0].ffn[0],
        embedding_size=config.hidden_size,
        num_hidden_groups=groups,
        inner_group_num=1,
        classifier_dropout_prob=dropout,
        bos_token_id=getattr(config, "bos_token_id", None),
        eos_token_id=getattr(config, "eos_token_id", None),
    )


def to_albert(model: nn.Module, shape: Shape, *, auto_class: str = CLASSIFIER) -> nn.Module:
    """Returns the ALBERT that computes exactly what a shared BERT does.

    Raises:
        RecipeError: as :func:`albert_config`.
    """
    made = build(albert_config(model.config, shape), None, auto_class=auto_class)
    state = {_name(name, shape): tensor for name, tensor in model.state_dict().items()}
    target = made.state_dict()
    width = int(model.config.hidden_size)  # type: ignore[union-attr,arg-type]
    mapping = f"{ADAPTERS['albert'].base}.encoder.embedding_hidden_mapping_in"
    state |= {f"{mapping}.weight": torch.eye(width), f"{mapping}.bias": torch.zeros(width)}
    made.load_state_dict({name: tensor for name, tensor in state.items() if name in target})
    return made.eval()


def _name(name: str, shape: Shape) -> str:
    """Returns ALBERT's name for a BERT's tensor; layers of one group get the same."""
    place, _, rest = name.removeprefix("bert.encoder.layer.").partition(".")
    if not name.startswith("bert.encoder.layer."):
        return name.replace("bert.", "albert.", 1).replace("albert.pooler.dense", "albert.pooler")
    group = (shape.groups or tuple(range(len(shape.layers))))[int(place)]
    inner, _, kind = rest.rpartition(".")
    return f"albert.encoder.albert_layer_groups.{group}.albert_layers.0.{_RENAMED[inner]}.{kind}"
