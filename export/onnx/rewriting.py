"""Small steps that the quantisers rewrite a graph with."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import onnx_ir as ir


def stored(graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
    """Returns the stored value ``name`` of a graph, made of ``array`` where there is none yet."""
    if name in graph.initializers:
        return graph.initializers[name]
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    return value


def own_matrix(node: ir.Node, index: int, chosen: Collection[ir.Node]) -> np.ndarray | None:
    """Returns the stored matrix at ``index`` of a node if only ``chosen`` nodes read it, and at that place.

    A matrix that others read as well is not to be converted: it would have to be stored twice.
    """
    value = node.inputs[index]
    if value is None or value.const_value is None or len(value.const_value.shape) != 2:
        return None
    return value.const_value.numpy() if all(u.node in chosen and u.idx == index for u in value.uses()) else None


def insert(
    before: ir.Node,
    operator: str,
    inputs: Sequence[ir.Value],
    name: str,
    *,
    outputs: int = 1,
    domain: str = "",
    **attributes: int,
) -> list[ir.Value]:
    """Inserts a node before another one; returns its outputs, which are named after it."""
    node = ir.node(operator, list(inputs), attributes, name=name, num_outputs=outputs, domain=domain)
    for index, value in enumerate(node.outputs):
        value.name = f"{name}_output_{index}"
    graph_of(before).insert_before(before, node)
    return list(node.outputs)


def replace(node: ir.Node, result: ir.Value) -> None:
    """Puts ``result`` in the place of a node's only output, under the same name, and removes the node."""
    ir.convenience.replace_nodes_and_values(graph_of(node), node, [node], [], [node.outputs[0]], [result])


def graph_of(node: ir.Node) -> ir.Graph:
    """Returns the graph a node stands in."""
    if not isinstance(node.graph, ir.Graph):
        raise ValueError(f"{node.name} stands in no graph")
    return node.graph


def inputs_of(node: ir.Node) -> list[ir.Value]:
    """Returns the inputs of a node that has no optional ones left out."""
    return [value for value in node.inputs if value is not None]
