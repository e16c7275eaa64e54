"""Mask constants that half precision can hold."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

MASK_FILL = -1e4
"""exp(-1e4) is 0 in every float type, and half precision holds it; scores of trained encoders stay far above it."""
HALF_MAX = 65504.0
"""The largest finite half-precision number (IEEE 754 binary16)."""
_MASKING = frozenset({"Where", "Add", "Mul", "Sub", "Expand", "ConstantOfShape"})


class FiniteMasksPass(ir.passes.InPlacePass):
    """Replaces scalar fills beyond half range (the lowest float32, minus infinity) by ``MASK_FILL`` of the same sign.

    The bounds of a Clip and all other operands keep their value: they mean something else.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrites the constants in place."""
        modified = False
        for value in list(model.graph.initializers.values()):
            tensor = value.const_value
            if tensor is None or not _is_float(tensor) or tensor.size != 1:
                continue
            if any(node.op_type in _MASKING for node in value.consumers()) and _beyond_half(tensor.numpy()):
                value.const_value = _finite(tensor, str(value.name))
                modified = True
        for node in model.graph:
            attribute = node.attributes.get("value")
            if node.op_type == "ConstantOfShape" and attribute is not None:
                tensor = attribute.as_tensor()
                if _is_float(tensor) and _beyond_half(tensor.numpy()):
                    node.attributes["value"] = ir.AttrTensor("value", _finite(tensor, "value"))
                    modified = True
        return ir.passes.PassResult(model, modified)


def _is_float(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _beyond_half(array: np.ndarray) -> bool:
    return bool(np.any(np.abs(array) > HALF_MAX))


def _finite(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    array = tensor.numpy()
    fill = np.copysign(np.full_like(array, abs(MASK_FILL)), array)
    return ir.tensor(fill.astype(array.dtype), name=name)
