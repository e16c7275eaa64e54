"""From token vectors to one vector a text, as a sentence-transformers folder states it (Reimers and Gurevych 2019)."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.core.schema import Record

_MODULES = "modules.json"
_TRANSFORMER = "sentence_bert_config.json"
_POOLED = ("Transformer", "Pooling", "Normalize")
_EPSILON = 1e-12
"""Square of the smallest length that a vector is divided by."""

Pooled = Literal["mean", "cls"]


class PoolingSpec(Record):
    """How token vectors become the text's vector."""

    mode: Pooled = "mean"
    normalize: bool = True
    """Divide by the Euclidean length, so that a dot product is the cosine."""
    max_tokens: int | None = None
    """Where the checkpoint's own tokenisation cuts a text, if before the model's positions end."""


def is_sentence_transformer(checkpoint: Checkpoint) -> bool:
    """Returns whether a folder says how its token vectors are pooled."""
    return (checkpoint.path / _MODULES).is_file()


def read_pooling(checkpoint: Checkpoint) -> PoolingSpec:
    """Returns what ``modules.json``, the pooling folder and ``sentence_bert_config.json`` of a checkpoint say.

    A folder without them is pooled by the mean over its real tokens and normalised.

    Raises:
        ModelError: a module after the encoder, or a way of pooling, that is not carried into an artifact.
    """
    if not is_sentence_transformer(checkpoint):
        return PoolingSpec()
    modules = _read(checkpoint, _MODULES)
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    unknown = [kind for kind in kinds if kind not in _POOLED]
    if unknown or "Pooling" not in kinds:
        found = f"a {unknown[0]} module" if unknown else "no pooling module"
        raise ModelError(
            f"{checkpoint.path}/{_MODULES} states {found}; only {', '.join(_POOLED)} are carried into an artifact",
            remedy="choose a checkpoint that ends in pooling and normalisation: another would be left out silently",
        )
    settings = _read(checkpoint, f"{modules[kinds.index('Pooling')].get('path')}/config.json")
    cut = _read(checkpoint, _TRANSFORMER) if (checkpoint.path / _TRANSFORMER).is_file() else {}
    return PoolingSpec(
        mode=_mode(checkpoint, settings), normalize="Normalize" in kinds, max_tokens=cut.get("max_seq_length")
    )


class EmbeddingOutput(NamedTuple):
    """What an embedder returns."""

    embedding: torch.Tensor
    """Shape (batch, width)."""


class Embedder(nn.Module):
    """An encoder whose token vectors are pooled inside the graph.

    Args:
        encoder: a transformers encoder without a head.
        base: attribute that holds the encoder, so that module paths are those of the family's models with a head.
        pooling: how to pool.
        keep_pooler: keep a pooler that this answer does not use.
    """

    def __init__(self, encoder: nn.Module, base: str, pooling: PoolingSpec, *, keep_pooler: bool = False) -> None:
        super().__init__()
        if not keep_pooler and getattr(encoder, "pooler", None) is not None:
            # A dense layer over the first token, trained for next-sentence prediction: no part of this answer.
            encoder.pooler = None  # type: ignore[assignment]
        self.add_module(base, encoder)
        self._base = base
        self.config: Any = encoder.config
        self.pooling = pooling
        self._takes = frozenset(inspect.signature(encoder.forward).parameters)

    def forward(
        self, *, attention_mask: torch.Tensor, pooling_mask: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> EmbeddingOutput:
        """Returns one vector a text.

        Args:
            attention_mask: as the encoder takes it; the (batch, tokens) mask, or additive scores made from it.
            pooling_mask: the (batch, tokens) mask, where ``attention_mask`` is additive.
            inputs: the encoder's other inputs; those it does not take are left out.
        """
        taken = {name: value for name, value in inputs.items() if name in self._takes}
        states = self.get_submodule(self._base)(attention_mask=attention_mask, **taken).last_hidden_state
        mask = attention_mask if pooling_mask is None else pooling_mask
        vector = states[:, 0] if self.pooling.mode == "cls" else mean_over_tokens(states, mask)
        return EmbeddingOutput(unit_length(vector) if self.pooling.normalize else vector)

    @property
    def encoder(self) -> nn.Module:
        """The transformers model inside."""
        return self.get_submodule(self._base)

    def save_pretrained(self, folder: Path) -> None:
        """Writes config and weights of the encoder; how it is pooled stands in files of their own."""
        self.encoder.save_pretrained(folder)  # type: ignore[operator]


def mean_over_tokens(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean of the real tokens' vectors.

    Args:
        states: shape (batch, tokens, width).
        mask: 1 for text, 0 for padding, shape (batch, tokens).
    """
    weights = mask.to(states.dtype)
    # Weights that sum to one keep every partial sum within the range of a single vector, for half precision's sake.
    weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1.0)
    return (states * weights[:, :, None]).sum(dim=1)


def unit_length(vectors: torch.Tensor) -> torch.Tensor:
    """Returns vectors (batch, width) divided by their Euclidean length, out of operators that every format has."""
    squares = (vectors * vectors).sum(dim=1, keepdim=True)
    return vectors / torch.sqrt(squares.clamp(min=_EPSILON))


def _mode(checkpoint: Checkpoint, settings: dict[str, Any]) -> Pooled:
    named = settings.get("pooling_mode")
    flags = [name.removeprefix("pooling_mode_") for name, on in settings.items() if on is True and "mode_" in name]
    chosen = [named] if isinstance(named, str) else flags
    modes: dict[str, Pooled] = {"mean_tokens": "mean", "mean": "mean", "cls_token": "cls", "cls": "cls"}
    if len(chosen) != 1 or chosen[0] not in modes:
        raise ModelError(
            f"{checkpoint.path} is pooled by {' + '.join(chosen) or 'nothing'}; expected the mean of the tokens or the "
            "first (CLS) token",
            remedy="only these two are carried into an artifact; choose another checkpoint",
        )
    return modes[chosen[0]]


def _read(checkpoint: Checkpoint, name: str) -> Any:
    file = checkpoint.path / name
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}", remedy="fetch the whole model folder again") from error
