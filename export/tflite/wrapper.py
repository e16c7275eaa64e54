"""The model as a phone wants it: int32 ids of one length in, float32 logits out, and no constant beyond -100.

Transformers turns a mask into additive scores of -3.4e38, which neither half precision nor an integer range can hold,
through operators (``GATHER_ND`` version 5) that older runtimes lack. Here the scores come from the mask by one
multiplication; exp(-100) is far below what float32 can add to a softmax's sum.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from compressor.core.task import outputs_of
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from export.backend import ConversionSpec

MASKED_SCORE = -100.0
"""Attention score of a padded token."""

Route = Callable[[torch.Tensor, torch.Tensor, int], dict[str, torch.Tensor]]
"""(ids, mask, pad id) to the keyword arguments with which a family takes them."""


def _additive(ids: torch.Tensor, mask: torch.Tensor, pad_id: int) -> dict[str, torch.Tensor]:
    """A mask of four dimensions, (1, 1, 1, tokens), is taken as ready-made scores."""
    scores = (1.0 - mask.to(torch.float32)) * MASKED_SCORE
    return {ATTENTION_MASK: scores[:, None, None, :]}


def _additive_with_positions(ids: torch.Tensor, mask: torch.Tensor, pad_id: int) -> dict[str, torch.Tensor]:
    """RoBERTa counts its positions over the tokens that are no padding, from ``pad_id + 1``."""
    real = (ids != pad_id).to(torch.int32)
    positions = torch.cumsum(real, dim=1, dtype=torch.int32) * real + pad_id
    return {**_additive(ids, mask, pad_id), "position_ids": positions}


def _plain(ids: torch.Tensor, mask: torch.Tensor, pad_id: int) -> dict[str, torch.Tensor]:
    """DeBERTa multiplies the two-dimensional mask into its embeddings and fills scores by it."""
    return {ATTENTION_MASK: mask}


_ROUTES: Mapping[str, Route] = {
    "roberta": _additive_with_positions,
    "xlm-roberta": _additive_with_positions,
    "deberta-v2": _plain,
}


class _FiniteFill(TorchFunctionMode):
    """Fills masked scores with MASKED_SCORE where a model asks for the smallest float."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.masked_fill and isinstance(args[2], float):
            args = (*args[:2], max(args[2], MASKED_SCORE), *args[3:])
        return func(*args, **(kwargs or {}))


class FixedLengthModel(nn.Module):
    """A model whose inputs are int32 tensors of shape (1, tokens) and whose outputs have their canonical names.

    Args:
        model: a model with its head, eager attention, in evaluation mode.
        spec: its family, its padding id and whether it reads token types.
    """

    def __init__(self, model: nn.Module, spec: ConversionSpec) -> None:
        super().__init__()
        self.model = model
        self._route = _ROUTES.get(spec.model_type, _additive)
        self._pad_id = spec.pad_id
        self._outputs = outputs_of(spec.task)
        self._pools = spec.task == "sentence-embedding"
        self._has_token_types = self._pools or TOKEN_TYPE_IDS in inspect.signature(model.forward).parameters

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """Returns the outputs for one padded row."""
        arguments = self._route(input_ids, attention_mask, self._pad_id)
        if self._has_token_types:
            arguments[TOKEN_TYPE_IDS] = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        if self._pools:
            arguments["pooling_mask"] = attention_mask
        with _FiniteFill():
            output = self.model(**{INPUT_IDS: input_ids}, **arguments)
        return {name: getattr(output, name).to(torch.float32) for name in self._outputs}


@contextmanager
def unfolded_norms(model: nn.Module) -> Iterator[None]:
    """Keeps the converter from multiplying the scale of a norm into the linear layers that follow it.

    It saves no operator, for the norm's own output is needed for the residual; but it gives a layer that is applied
    several times (ALBERT) a copy of its weights for every norm it follows, and it hands the norm's outlying channels
    to the quantiser. While the block runs, the input of every linear layer passes a barrier that the converter drops.
    """
    from litert_torch.backend.optimization_barrier import optimization_barrier

    def guard(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        # The operator's lowering yields no sequence for a single tensor, so it goes through twice.
        return (optimization_barrier(inputs[0], inputs[0])[0], *inputs[1:])

    handles = [m.register_forward_pre_hook(guard) for m in model.modules() if isinstance(m, nn.Linear)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def sample_inputs(spec: ConversionSpec, length: int) -> dict[str, torch.Tensor]:
    """Returns inputs of one length to trace with: a tensor each, for a tracer merges inputs that are one."""
    names = (INPUT_IDS, ATTENTION_MASK, *((TOKEN_TYPE_IDS,) if spec.takes_token_types else ()))
    return {name: torch.zeros(1, length, dtype=torch.int32) for name in names}
