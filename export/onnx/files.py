"""Reading and writing ONNX files; external data by measured size, never by a flag."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from compressor.core.errors import ArtifactError, StageError
from export.onnx import wire

MODEL_FILE = "model.onnx"
MAX_EMBEDDED_BYTES = 1_800_000_000
"""Weights above this go to a file beside the graph; protobuf itself ends at 2 GiB."""


def load(path: Path) -> ir.Model:
    """Reads an ONNX file; large weights stay in the file and are read when they are used.

    Raises:
        ArtifactError: the file is missing, or is no whole ONNX model.
    """
    try:
        model = wire.read(path)
        if not len(model.graph) or not model.graph.outputs or not model.graph.opset_imports:
            raise ValueError("it holds no graph")
        ir.external_data.set_base_dir(model.graph, path.parent)
        for value in model.graph.initializers.values():
            _check_whole(value)
    except Exception as error:  # protobuf, numpy and the IR each raise classes of their own
        raise ArtifactError(
            f"{path} is not a readable ONNX model: {error}", remedy="copy the file again, or convert again"
        ) from error
    return model


def _check_whole(value: ir.Value) -> None:
    tensor = value.const_value
    if tensor is None:
        raise ValueError(f"initializer '{value.name}' has no data")
    if isinstance(tensor, ir.ExternalTensor):
        size = Path(tensor.path).stat().st_size
        if size < (tensor.offset or 0) + tensor.nbytes:
            raise ValueError(f"'{tensor.location}', which holds initializer '{value.name}', is cut short")
    elif not isinstance(tensor, ir.LazyTensor) and len(tensor.tobytes()) != tensor.nbytes:
        raise ValueError(f"initializer '{value.name}' is cut short")


def save(model: ir.Model, path: Path) -> None:
    """Writes a model; weights above MAX_EMBEDDED_BYTES go to ``<name>.data`` beside it."""
    if weight_bytes(model) > MAX_EMBEDDED_BYTES:
        ir.save(model, path, external_data=f"{path.name}.data")
    else:
        wire.write(model, path)


def weight_bytes(model: ir.Model) -> int:
    """Returns the bytes of all stored initializers."""
    values = model.graph.initializers.values()
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def stored_bytes(path: Path) -> int:
    """Returns the size of an ONNX file with its external data."""
    return sum(file.stat().st_size for file in model_files(path))


def model_files(path: Path) -> tuple[Path, ...]:
    """Returns an ONNX file and the external data files it names."""
    tensors = wire.skeleton(path).proto.graph.initializer
    names = {ExternalDataInfo(tensor).location for tensor in tensors if uses_external_data(tensor)}
    return (path, *(path.parent / name for name in sorted(names)))


def opset_of(model: ir.Model) -> int:
    """Returns the version of the standard operator set as the file states it.

    Raises:
        ArtifactError: the file does not import the standard operators.
    """
    imports = model.graph.opset_imports
    version = imports.get("", imports.get("ai.onnx"))
    if version is None:
        raise ArtifactError("the model imports no standard operator set", remedy="export it again with an opset")
    return int(version)


def check(path: Path, *, opset: int) -> None:
    """Proves a file that was written here: valid, all shapes inferred strictly, the opset that was asked for.

    Raises:
        StageError: the checker refuses the graph, or the file states another opset.
    """
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise StageError(f"{path.name} is not a valid graph: {error}", remedy="report this model") from error
    found = opset_of(load(path))
    if found != opset:
        raise StageError(
            f"{path.name} states opset {found}; expected {opset}", remedy="check the versions of torch and onnx"
        )
