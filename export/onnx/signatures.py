"""Inputs and outputs as the ONNX file states them."""

from __future__ import annotations

from typing import Literal, get_args

import onnx_ir as ir

from compressor.core.artifact import Signature, TensorSpec
from compressor.core.errors import ArtifactError
from compressor.core.task import output_roles
from compressor.text import CANONICAL_INPUTS

_Dtype = Literal["int32", "int64", "float32", "float16", "int8", "uint8"]
_DTYPES: dict[ir.DataType, _Dtype] = {
    ir.DataType.INT32: "int32",
    ir.DataType.INT64: "int64",
    ir.DataType.FLOAT: "float32",
    ir.DataType.FLOAT16: "float16",
    ir.DataType.INT8: "int8",
    ir.DataType.UINT8: "uint8",
}


def read_signature(model: ir.Model, *, key: str | None = None, length: int | None = None) -> Signature:
    """Returns the entry point of a graph.

    Args:
        model: the graph.
        key: name of the entry point, where there are several.
        length: number of tokens of this entry point; it replaces a dynamic token dimension in the shapes of the inputs.

    Raises:
        ArtifactError: an input is none of the canonical ones, or has a type that no app feeds.
    """
    inputs = tuple(_spec(value, length) for value in model.graph.inputs)
    unknown = [spec.name for spec in inputs if spec.name not in CANONICAL_INPUTS]
    if unknown:
        raise ArtifactError(
            f"the model has inputs {', '.join(unknown)}; expected only {', '.join(CANONICAL_INPUTS)}",
            remedy="export the model with this project, or rename its inputs",
        )
    outputs = tuple(_spec(value, None) for value in model.graph.outputs)
    static = next((dim for spec in inputs for dim in spec.shape[1:2] if isinstance(dim, int)), None)
    return Signature(
        key=key,
        length=length if length is not None else static,
        inputs=inputs,
        outputs=outputs,
        roles={spec.name: spec.name for spec in inputs},
        output_roles=output_roles([spec.name for spec in outputs]),
    )


def _spec(value: ir.Value, length: int | None) -> TensorSpec:
    dtype = _DTYPES.get(value.dtype) if value.dtype is not None else None
    if dtype is None or value.shape is None:
        raise ArtifactError(
            f"'{value.name}' has type {value.dtype} and shape {value.shape}; expected a stated shape and one of "
            f"{', '.join(get_args(_Dtype))}",
            remedy="export the model again",
        )
    dims = [dim if isinstance(dim, int) else str(dim.value or "unknown") for dim in value.shape]
    if length is not None and len(dims) == 2 and not isinstance(dims[1], int):
        dims[1] = length
    return TensorSpec(name=str(value.name), dtype=dtype, shape=tuple(dims))
