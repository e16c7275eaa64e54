"""A mask that leaves an eight-bit range its resolution."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from export.onnx.passes.finite_masks import MASK_FILL

NPU_FILL = -100.0
"""exp(-100) is 4e-44: no score of a trained encoder comes near it, and 256 steps still hold text beside it."""


class NpuMasksPass(ir.passes.InPlacePass):
    """Replaces the scalar mask fill of the other formats (``MASK_FILL``) by ``NPU_FILL``.

    A fill of -3e38, or still of -1e4, makes the observed range of ``scores + mask`` so wide that all text falls into
    one quantisation step; published NPU builds lost their task that way.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the constants in place."""
        modified = False
        for value in list(model.graph.initializers.values()):
            tensor = value.const_value
            if tensor is not None and _is_fill(tensor):
                value.const_value = _npu_fill(tensor, str(value.name))
                modified = True
        for node in model.graph:
            attribute = node.attributes.get("value")
            if node.op_type == "ConstantOfShape" and attribute is not None and _is_fill(attribute.as_tensor()):
                node.attributes["value"] = ir.AttrTensor("value", _npu_fill(attribute.as_tensor(), "value"))
                modified = True
        return ir.passes.PassResult(model, modified)


def _is_fill(tensor: ir.TensorProtocol) -> bool:
    return (
        tensor.dtype is ir.DataType.FLOAT
        and tensor.size == 1
        and abs(float(tensor.numpy().reshape(-1)[0])) == abs(MASK_FILL)
    )


def _npu_fill(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    array = tensor.numpy()
    return ir.tensor(np.copysign(np.full_like(array, abs(NPU_FILL)), array), name=name)
