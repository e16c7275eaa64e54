"""Linear weights in the orientation in which the product reads them."""

from __future__ import annotations

import onnx_ir as ir


class StoredTransposesPass(ir.passes.InPlacePass):
    """Replaces ``Transpose(W)`` of a stored matrix by a stored matrix: a view of the same memory, no copy.

    A tracer writes a linear layer as ``MatMul(x, Transpose(W))``; quantisers want the weight itself at the product.
    Where ``W`` is read as it is too (a head tied to the embeddings), both stay for :class:`TransposedWeightsPass`.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the graph in place."""
        graph = model.graph
        modified = False
        for value in list(graph.initializers.values()):
            nodes = [use.node for use in value.uses() if _flips(use.node)]
            tensor = value.const_value
            if not nodes or tensor is None or len(tensor.shape) != 2:
                continue
            only = len(nodes) == len(value.uses()) and not value.is_graph_output()
            name = str(value.name)
            if only:
                del graph.initializers[name]
            stored = ir.Value(name=name if only else f"{name}_transposed", type=value.type)
            matrix = tensor.numpy().T
            stored.const_value, stored.shape = ir.tensor(matrix, name=stored.name), ir.Shape(matrix.shape)
            graph.initializers.add(stored)
            for node in nodes:
                node.outputs[0].replace_all_uses_with(stored)
                graph.remove(node, safe=True)
            modified = True
        return ir.passes.PassResult(model, modified)


def _flips(node: ir.Node) -> bool:
    """Whether a node is a Transpose whose result stays inside the graph."""
    return node.op_type == "Transpose" and not node.outputs[0].is_graph_output()
