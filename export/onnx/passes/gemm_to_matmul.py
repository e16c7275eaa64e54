"""Gemm as MatMul and Add, which dynamic quantisation knows."""

from __future__ import annotations

import onnx_ir as ir


class GemmToMatMulPass(ir.passes.InPlacePass):
    """Rewrites ``Gemm(A, W, b)`` with plain scales to ``Add(MatMul(A, W), b)``; node names keep their module path.

    A transposed weight is stored transposed, so it stays a plain initializer; a weight that others also read
    untransposed is left alone, because it would have to be stored twice.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the graph in place."""
        modified = False
        for node in list(model.graph):
            if node.op_type == "Gemm" and _is_plain(node) and _store_untransposed(node):
                _rewrite(model.graph, node)
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_plain(node: ir.Node) -> bool:
    attributes = node.attributes
    scales = (attributes.get_float("alpha", 1.0), attributes.get_float("beta", 1.0))
    return scales == (1.0, 1.0) and attributes.get_int("transA", 0) == 0


def _store_untransposed(node: ir.Node) -> bool:
    weight = node.inputs[1]
    if weight is None or not node.attributes.get_int("transB", 0):
        return weight is not None
    readers = [use for use in weight.uses() if not (use.node.op_type == "Gemm" and use.idx == 1)]
    same = all(n.attributes.get_int("transB", 0) == 1 and _is_plain(n) for n in weight.consumers())
    if weight.const_value is None or readers or not same:
        return False
    array = weight.const_value.numpy()
    weight.const_value = ir.tensor(array.T.copy(), name=weight.name)
    weight.shape = ir.Shape(array.T.shape)
    for consumer in weight.consumers():
        consumer.attributes["transB"] = ir.AttrInt64("transB", 0)
    return True


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    output = node.outputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    name = str(node.name).removesuffix("Gemm")
    product = ir.node("MatMul", list(node.inputs[:2]), name=f"{name}MatMul")
    product.outputs[0].name = f"{name}MatMul_output_0"
    product.outputs[0].type, product.outputs[0].shape = output.type, output.shape
    nodes, result = [product], product.outputs[0]
    if bias is not None:
        total = ir.node("Add", [result, bias], name=f"{name}Add")
        total.outputs[0].name = f"{name}Add_output_0"
        total.outputs[0].type, total.outputs[0].shape = output.type, output.shape
        nodes.append(total)
        result = total.outputs[0]
    name_of_output = output.name
    ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, [output], [result])
    result.name = name_of_output
