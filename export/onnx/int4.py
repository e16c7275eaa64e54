"""Weights in four bits, block by block: ONNX Runtime's ``com.microsoft.MatMulNBits``."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from export.onnx.rewriting import graph_of, inputs_of, insert, own_matrix, replace, stored

DOMAIN = "com.microsoft"
BLOCK = 32
"""Weights of one output that share a scale and a zero point."""
_COMPUTE_INT8 = 4
"""``accuracy_level``: the activation is quantised to eight bits block by block, which is the fast kernel."""


def quantize_blocks(model: ir.Model, products: Collection[ir.Node]) -> None:
    """Rewrites MatMul nodes with a stored weight to MatMulNBits with 4-bit weights, in place.

    Packing is ONNX Runtime's own. A shared weight is packed and stored once.
    """
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, DefaultWeightOnlyQuantizer

    packer = DefaultWeightOnlyQuantizer(DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=False, bits=4))
    weights = {node: own_matrix(node, 1, products) for node in products}
    for node, weight in weights.items():
        if weight is None:
            continue
        activation, source = inputs_of(node)
        graph, names = graph_of(node), [f"{source.name}_{end}" for end in ("int4", "scale", "zero")]
        if names[0] not in graph.initializers:
            packed = packer.qbits_block_quant(np.ascontiguousarray(weight, dtype=np.float32))
            for name, array in zip(names, packed, strict=True):
                stored(graph, name, array)
        inputs, outputs = weight.shape
        (result,) = insert(
            node, "MatMulNBits", [activation, *(graph.initializers[name] for name in names)], f"{node.name}_quant",
            domain=DOMAIN, K=inputs, N=outputs, bits=4, block_size=BLOCK, accuracy_level=_COMPUTE_INT8,
        )  # fmt: skip
        replace(node, result)
        model.graph.opset_imports[DOMAIN] = 1
