"""The FP32 graph that every ONNX-based format starts from: traced, cleaned, written and proven."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
from torch import nn

from compressor.core.errors import StageError
from export.backend import ConversionSpec
from export.onnx import files
from export.onnx.passes import ModulePathsPass, clean
from export.onnx.trace_options import TraceOptions
from export.onnx.tracing import trace

_MAX_GROWTH = 1.1
_GRAPH_BYTES_A_NODE = 1024
"""Room for what is no weight: names, shapes and attributes; it only matters for very small models."""


def build(
    model: nn.Module,
    spec: ConversionSpec,
    path: Path,
    options: TraceOptions,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes the clean FP32 graph of ``model`` to ``path``.

    Raises:
        StageError: the graph is not valid, states another opset, or is larger than the model's unique parameters allow.
    """
    graph = trace(model, spec, options)
    clean(graph)
    ModulePathsPass([name for name, _ in model.named_modules()])(graph)
    graph.metadata_props.update(metadata or {})
    shapes = spec.output_shapes("batch" if options.dynamic_batch else 1, "tokens")
    for output, shape in zip(graph.graph.outputs, shapes.values(), strict=True):
        output.shape = ir.Shape(shape)
    files.save(graph, path)
    files.check(path, opset=options.opset)
    _check_size(path, graph, model)


def _check_size(path: Path, graph: ir.Model, model: nn.Module) -> None:
    """A weight that is shared in PyTorch must be stored once."""
    parameters = {p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}
    unique = sum(parameters.values())
    limit = int(_MAX_GROWTH * unique) + _GRAPH_BYTES_A_NODE * graph.graph.num_nodes()
    found = files.stored_bytes(path)
    if found > limit:
        raise StageError(
            f"{path.name} holds {found / 1e6:.1f} MB; expected at most {limit / 1e6:.1f} MB for "
            f"{unique / 1e6:.1f} MB of unique parameters: a shared weight is stored more than once",
            remedy="report this model",
        )
