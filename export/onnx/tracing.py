"""From a PyTorch model to a raw ONNX graph, by tracing."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path

import onnx_ir as ir
import torch
from torch import nn

from compressor.core.task import outputs_of
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from export.backend import ConversionSpec
from export.onnx.passes.finite_masks import MASK_FILL
from export.onnx.policy import WRAPPED
from export.onnx.quiet import errors_only
from export.onnx.trace_options import TraceOptions

_MASKS_BY_PAIR = frozenset({"deberta-v2"})
"""Families that build a mask over token pairs from the (batch, tokens) mask and accept no additive mask."""


class TracedModel(nn.Module):
    """A model with positional inputs, its outputs in order, and an attention mask that half precision can hold.

    Transformers fills its masks with the lowest float32, which is minus infinity in half precision. Most families take
    a ready additive mask of shape (batch, 1, 1, tokens) instead, so it is made here, with a fill that stays finite.
    """

    def __init__(self, model: nn.Module, spec: ConversionSpec) -> None:
        super().__init__()
        self.add_module(WRAPPED, model)
        self._additive_mask = spec.model_type not in _MASKS_BY_PAIR
        self._outputs = outputs_of(spec.task)
        self._pools = spec.task == "sentence-embedding"

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Returns the outputs for ids and mask of shape (batch, tokens)."""
        mask = attention_mask
        if self._additive_mask:
            mask = (1.0 - attention_mask[:, None, None, :].to(torch.float32)) * MASK_FILL
        more = {} if token_type_ids is None else {TOKEN_TYPE_IDS: token_type_ids}
        if self._pools:
            more["pooling_mask"] = attention_mask
        output = self.get_submodule(WRAPPED)(input_ids=input_ids, attention_mask=mask, **more)
        return tuple(getattr(output, name) for name in self._outputs)


def trace(model: nn.Module, spec: ConversionSpec, options: TraceOptions) -> ir.Model:
    """Returns the raw traced graph of ``model``, whose initializers are views of the model's own parameters.

    The TorchScript exporter is used: it keeps LayerNormalization as one operator, names every node after its module,
    and writes the opset it was asked for. It is asked for the graph alone: passing the weights through protobuf copies
    them several times, and folding constants transposes them, so that shared ones are no longer recognised.
    """
    names = [INPUT_IDS, ATTENTION_MASK, *([TOKEN_TYPE_IDS] if spec.takes_token_types else [])]
    rows, tokens = (2 if options.dynamic_batch else 1), min(8, spec.max_tokens)
    ids = torch.full((rows, tokens), spec.pad_id + 1 if spec.pad_id == 0 else 0, dtype=getattr(torch, options.integer))
    mask = torch.ones_like(ids)
    mask[:, -1] = 0
    example = (ids, mask, torch.zeros_like(ids))[: len(names)]
    axes = {0: "batch", 1: "tokens"} if options.dynamic_batch else {1: "tokens"}
    dynamic: dict[str, dict[int, str]] = {name: dict(axes) for name in names}
    outputs = spec.output_shapes("batch" if options.dynamic_batch else 1, "tokens")
    for name, shape in outputs.items():
        dynamic[name] = {axis: extent for axis, extent in enumerate(shape) if isinstance(extent, str)}
    wrapped = TracedModel(model, spec).eval()
    with (
        tempfile.TemporaryDirectory() as folder,
        errors_only("torch.onnx"),
        warnings.catch_warnings(),
        torch.no_grad(),
    ):
        graph = Path(folder) / "graph.onnx"
        warnings.simplefilter("ignore")  # one for every shape that Python reads; the parity check covers them
        torch.onnx.export(
            wrapped,
            example,
            str(graph),
            dynamo=False,
            opset_version=options.opset,
            input_names=names,
            output_names=list(outputs),
            dynamic_axes=dynamic,
            export_params=False,
            do_constant_folding=False,
        )
        traced = ir.load(graph)
    _attach_weights(traced.graph, wrapped)
    return traced


def _attach_weights(graph: ir.Graph, wrapped: nn.Module) -> None:
    """Turns the inputs that stand for parameters and buffers into initializers that share the tensors' memory."""
    tensors = wrapped.state_dict()
    parameters = [value for value in graph.inputs if value.name in tensors]
    for value in parameters:
        graph.inputs.remove(value)
        value.const_value = ir.tensor(tensors[str(value.name)].numpy(), name=value.name)
        graph.initializers.add(value)
