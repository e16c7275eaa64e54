"""The layers of a built engine, read from the builder's own verbose log: the types that it really computes in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from compressor.core.schema import Record

_HEADER = "Layers:"
_LAYER = re.compile(r"^Name: (?P<name>.*?), LayerType: (?P<kind>[^,]*),")
_SECTIONS = ("Inputs", "Constants", "Outputs")
_TENSOR = re.compile(r"Dimensions: \[(?P<dims>[^\]]*)\].*?Datatype: (?P<dtype>\w+)")
_SOURCE = re.compile(r"\[ONNX Layer: (?P<name>[^\]]*?)(?: \[profile \d+\])?\]")
_GEMM_KINDS = frozenset({"gemm", "matmul", "fmha", "mha"})
_ATTENTION_KINDS = frozenset({"fmha", "mha"})
_ATTENTION_NAME = "_gemm_mha"
_FUSIONS = frozenset({"runtime_fusion"})
"""Layers compiled around a GEMM; they count when one of the source nodes is a GEMM."""
_GEMM_NODE = re.compile(r"/(MatMul|Gemm)(_\d+)?$")


class BuiltLayer(Record):
    """One layer of an engine."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    """Data types of the activations it reads, e.g. ``Half``."""
    weights: tuple[str, ...]
    """Data types of the constant matrices it reads; scalars and vectors (scales, biases) are left out, but where
    the product is one number: a head of one output multiplies by a vector."""
    outputs: tuple[str, ...]
    onnx_nodes: tuple[str, ...]
    """Names of the ONNX nodes it was made from."""

    @property
    def is_gemm(self) -> bool:
        """Whether the layer multiplies matrices."""
        return self.kind in _GEMM_KINDS or self.is_attention or (self.kind in _FUSIONS and self._holds_product)

    @property
    def _holds_product(self) -> bool:
        return any(_GEMM_NODE.search(name) for name in self.onnx_nodes)

    @property
    def is_attention(self) -> bool:
        """Whether the layer is a whole attention: both products, with softmax and mask between them."""
        return self.kind in _ATTENTION_KINDS or _ATTENTION_NAME in self.name

    @property
    def operand_types(self) -> frozenset[str]:
        """Data types that go into the product."""
        return frozenset((*self.inputs, *self.weights))

    def multiplies_in(self, dtype: str) -> bool:
        """Whether the products in this layer read ``dtype`` and nothing else.

        Generated kernels (``kgen``) also hold products of one row, together with what comes before them: there the
        activation is converted inside the kernel, and the stored matrix shows the type of the product. A fused
        attention also reads the mask, which is added to the scores and multiplied with nothing: what counts is that
        query, key and value are ``dtype``. So it is with the scores of very small heads, which are written out as
        sums in a generated kernel that has no weights: query and key count, and the mask may be one input more.
        """
        if self.is_attention:
            return self.inputs.count(dtype) >= len(("query", "key", "value"))
        if self.is_gemm:
            return self.operand_types == {dtype}
        if not self.weights and self._holds_product:
            alike = self.inputs.count(dtype)
            return alike >= len(("query", "key")) and len(self.inputs) - alike <= len(("mask",))
        return set(self.weights) == {dtype}


def built_layers(log: Iterable[str]) -> tuple[BuiltLayer, ...]:
    """Returns the layers from a verbose build log; empty where the log lists none.

    Args:
        log: messages of the builder, with ``ProfilingVerbosity.DETAILED``; one of them begins with ``Layers:``.
    """
    listing = [message for message in log if message.lstrip().startswith(_HEADER)]
    return tuple(layer for message in listing for line in message.splitlines() if (layer := _parse(line)) is not None)


def nodes_built_in(layers: Sequence[BuiltLayer], dtype: str) -> frozenset[str]:
    """Returns the names of the ONNX nodes that a layer multiplying in ``dtype`` was made from."""
    return frozenset(name for layer in layers if layer.multiplies_in(dtype) for name in layer.onnx_nodes)


def _parse(line: str) -> BuiltLayer | None:
    found = _LAYER.match(line)
    if found is None:
        return None
    inputs, constants, outputs = (_tensors(line, section) for section in _SECTIONS)
    nodes = tuple(_SOURCE.findall(line))
    extents = [(sum(dim not in ("1", "") for dim in dims), dtype) for dims, dtype in constants]
    matrices = tuple(dtype for extent, dtype in extents if extent >= 2)
    one_number = bool(outputs) and all(dim in ("1", "") for dims, _ in outputs for dim in dims)
    if one_number and not matrices and any(_GEMM_NODE.search(node) for node in nodes):
        matrices = tuple(dtype for extent, dtype in extents if extent == 1)
    return BuiltLayer(
        name=found["name"],
        kind=found["kind"].strip(),
        inputs=tuple(dtype for _, dtype in inputs),
        weights=matrices,
        outputs=tuple(dtype for _, dtype in outputs),
        onnx_nodes=nodes,
    )


def _tensors(line: str, section: str) -> list[tuple[list[str], str]]:
    """Returns (dimensions, data type) of the tensors listed in one section of a layer's line."""
    start = line.find(f", {section}: [")
    if start < 0:
        return []
    following = [", Inputs: [", ", Constants: [", ", Outputs: [", ", TacticName:"]
    ends = [position for text in following if (position := line.find(text, start + 1)) > 0]
    part = line[start : min(ends, default=len(line))]
    return [([dim.strip() for dim in m["dims"].split(",")], m["dtype"]) for m in _TENSOR.finditer(part)]
