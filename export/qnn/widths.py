"""Where a graph of 8-bit activations computes with 16: in sums and norms that 8 bits are too coarse for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from export.qnn.ranges import Histogram, clipped, kept_ratio_db

LEAST_DB = 32.0
"""Signal over quantisation noise below which a value gets 16 bits: noise of 2.5 % of its standard deviation."""
_WIDENED = frozenset({"Add", "Mul", "LayerNormalization"})

Ranges = Mapping[str, tuple[float, float]]


def wide_nodes(
    model: ir.Model,
    observed: Mapping[str, Histogram],
    ranges: Ranges,
    factors: frozenset[ir.Node],
    excluded: frozenset[str],
) -> frozenset[ir.Node]:
    """Returns the sums and norms, of those not ``excluded``, that 8 bits are too coarse for.

    These are nodes with a value of which 8 bits keep less than LEAST_DB, and what follows ``factors``, the products
    that give equalised channels their size back, up to the next norm. Matrix products keep 8 bits on both sides: that
    is what ``w8a8`` is fast by, and named after.
    """

    def coarse(value: ir.Value | None) -> bool:
        name = "" if value is None or value.producer() is None else str(value.name)
        return name in ranges and kept_ratio_db(observed[name], *ranges[name], 2**8) < LEAST_DB

    found = set(_up_to_the_norm(factors))
    for node in model.graph:
        if node.op_type in _WIDENED and any(map(coarse, (*node.inputs, *node.outputs))):
            found.add(node)
    return frozenset(node for node in found if node.name not in excluded)


def _up_to_the_norm(factors: frozenset[ir.Node]) -> Iterator[ir.Node]:
    waiting = list(factors)
    while waiting:
        node = waiting.pop()
        yield node
        if node.op_type != "LayerNormalization":
            readers = (reader for value in node.outputs for reader in value.consumers())
            waiting.extend(reader for reader in readers if reader.op_type in _WIDENED)


def width_overrides(
    model: ir.Model, wide: frozenset[ir.Node], observed: Mapping[str, Histogram], excluded: frozenset[str]
) -> dict[str, list[dict[str, Any]]]:
    """Returns ONNX Runtime's overrides by tensor that give the nodes ``wide`` 16 bits on every side.

    A value between nodes of both kinds has the bits of the node that writes it and is converted for the others. What
    a wide node adds or multiplies by gets 16 bits too: the factors of :mod:`export.qnn.equalize` span them. Nodes that
    are ``excluded`` from quantisation ask for nothing.
    """
    from onnxruntime.quantization import QuantType

    found: dict[str, list[dict[str, Any]]] = {}
    for value in _float_values(model):
        name, writer = str(value.name), value.producer()
        readers = {node for node in value.consumers() if node.name not in excluded}
        sixteen = readers & wide
        if writer is None:
            if sixteen and all(node.op_type != "LayerNormalization" for node in sixteen):
                found[name] = [{"quant_type": QuantType.QUInt16}]
            continue
        if not (sixteen or writer in wide) or name not in observed:
            continue
        low, high = clipped(observed[name], 2**16)
        full = {"quant_type": QuantType.QUInt16, "rmin": np.float32(low), "rmax": np.float32(high)}
        small: dict[str, Any] = {"quant_type": QuantType.QUInt8}
        mine, theirs, others = (full, small, readers - wide) if writer in wide else (small, full, sixteen)
        convert = {"convert": theirs | {"recv_nodes": {str(node.name) for node in others}}} if others else {}
        found[name] = [mine | convert]
    return found


def mixes_widths(model: ir.Model) -> bool:
    """Returns whether a quantised graph has activations of 8 bits and of 16."""
    zeros = (node.inputs[2] for node in model.graph if node.op_type == "QuantizeLinear")
    return len({value.dtype for value in zeros if value is not None}) > 1


def _float_values(model: ir.Model) -> Iterator[ir.Value]:
    yield from (value for value in model.graph.initializers.values() if value.dtype is ir.DataType.FLOAT)
    yield from (value for node in model.graph for value in node.outputs if value.dtype is ir.DataType.FLOAT)
