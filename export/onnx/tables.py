"""Embedding tables in eight bits, one scale a row."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from export.onnx.integers import quantize_rows
from export.onnx.rewriting import graph_of, inputs_of, insert, own_matrix, replace, stored


def quantize_tables(lookups: Collection[ir.Node]) -> None:
    """Stores the tables that the nodes ``lookups`` (Gather) read in int8, in place.

    A lookup becomes ``Cast(Gather(table, ids)) * Gather(scales, ids)``: only the rows of the sentence are widened.
    """
    tables = {node: own_matrix(node, 0, lookups) for node in lookups}
    for node, table in tables.items():
        if table is None or node.attributes.get_int("axis", 0) != 0:
            continue
        source, ids = inputs_of(node)
        rows, scales = quantize_rows(table)
        graph = graph_of(node)
        integers, factors = stored(graph, f"{source.name}_int8", rows), stored(graph, f"{source.name}_scale", scales)
        (picked,) = insert(node, "Gather", [integers, ids], f"{node.name}_int8", axis=0)
        (widened,) = insert(node, "Cast", [picked], f"{node.name}_Cast", to=int(ir.DataType.FLOAT))
        (factor,) = insert(node, "Gather", [factors, ids], f"{node.name}_scale", axis=0)
        (product,) = insert(node, "Mul", [widened, factor], f"{node.name}_Mul")
        replace(node, product)
