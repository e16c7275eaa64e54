"""Which module of the PyTorch model each stored weight belongs to, kept in the file itself.

A quantisation policy speaks of module paths (``bert.encoder.layer.0.output.dense``); a TFLite file knows buffers. The
paths are worked out once, right after conversion, and stored as a small metadata entry, so that everything later (a
lower precision, a look into the file) needs nothing but the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from compressor.core.errors import ArtifactError
from compressor.core.hashing import sha256_bytes
from export.tflite.flatbuffer import shape_of, weight_uses

ENTRY = b"compressor.modules"
"""Name of the metadata entry: zlib-compressed JSON ``{"modules": [path], "weights": {buffer: index into modules}}``."""

_CORNER = 32
"""Rows and columns that are compared: enough to tell any two trained or random matrices apart."""
_TOLERANCE = 1e-4
"""Of the logarithm of a ratio; float32 rounding gives 1e-7, unrelated matrices about 1."""


@dataclass(frozen=True)
class ModuleMap:
    """Module paths of a converted model."""

    modules: tuple[str, ...]
    """Every module with a weight matrix of its own, in the model's order: what a policy can name."""
    weights: Mapping[int, str]
    """Buffer index of a weight matrix to the path of its module."""


def find_modules(converted: Any, model: nn.Module) -> ModuleMap:
    """Returns the module map of a freshly converted file.

    Weights are recognised by their values, for the converter joins the names of operators it merges until they no
    longer tell a query from a value. Most matrices are stored as they were. Into some it multiplies a vector that comes
    before (the scale of a LayerNorm: one factor per column) or after (NoNorm, ``1 / sqrt(d)``: one per row); they are
    recognised by the ratio to the original, which is then a product of a row's and a column's factor.

    Args:
        converted: the ``ModelT``.
        model: the PyTorch model.

    Returns:
        The map; a weight that is neither (a constant computed from several parameters) has no entry.
    """
    owners = {path: module for path, module in model.named_modules() if _holds_matrix(module)}
    matrices = {
        path: parameter.detach().numpy()
        for path, module in owners.items()
        for parameter in module.parameters(recurse=False)
        if parameter.dim() == 2
    }
    exact = {sha256_bytes(matrix.tobytes()): path for path, matrix in reversed(matrices.items())}
    weights: dict[int, str] = {}
    folded: dict[int, np.ndarray] = {}
    for buffer, use in {use.buffer: use for use in weight_uses(converted)}.items():
        content = converted.buffers[buffer].data.tobytes()
        path = exact.get(sha256_bytes(content))
        if path is not None:
            weights[buffer] = path
        else:
            folded[buffer] = np.frombuffer(content, dtype=np.float32).reshape(shape_of(use.tensor))
    for buffer, matrix in folded.items():
        path = next((path for path, original in matrices.items() if _is_scaled(matrix, original)), None)
        if path is not None:
            weights[buffer] = path
    return ModuleMap(tuple(owners), weights)


def store_modules(converted: Any, modules: ModuleMap) -> None:
    """Writes the map into the file's metadata, in place of an older one."""
    from ai_edge_litert import schema_py_generated as schema

    index = {path: position for position, path in enumerate(modules.modules)}
    document = {
        "modules": modules.modules,
        "weights": {str(buffer): index[path] for buffer, path in modules.weights.items() if path in index},
    }
    data = zlib.compress(json.dumps(document, separators=(",", ":")).encode(), 9)
    converted.metadata = [entry for entry in converted.metadata or () if entry.name != ENTRY]
    converted.buffers.append(schema.BufferT(data=np.frombuffer(data, dtype=np.uint8)))
    converted.metadata.append(schema.MetadataT(name=ENTRY, buffer=len(converted.buffers) - 1))


def load_modules(converted: Any) -> ModuleMap:
    """Reads the map back.

    Raises:
        ArtifactError: the file has none; it was not converted by this project.
    """
    for entry in converted.metadata or ():
        if entry.name == ENTRY:
            document = json.loads(zlib.decompress(np.asarray(converted.buffers[entry.buffer].data, np.uint8).tobytes()))
            paths = tuple(document["modules"])
            return ModuleMap(paths, {int(buffer): paths[index] for buffer, index in document["weights"].items()})
    raise ArtifactError(
        "the TFLite file does not say which module each weight belongs to; expected one converted by this project",
        remedy="convert the checkpoint again instead of quantising a foreign file",
    )


def _holds_matrix(module: nn.Module) -> bool:
    return any(parameter.dim() >= 2 for parameter in module.parameters(recurse=False))


def _is_scaled(matrix: np.ndarray, original: np.ndarray) -> bool:
    """Returns whether ``matrix[i, j] = row[i] * column[j] * original[i, j]``, judged on a corner of both."""
    if matrix.shape != original.shape:
        return matrix.ndim == 2 and matrix.T.shape == original.shape and _is_scaled_block(matrix.T, original)
    return _is_scaled_block(matrix, original) or (
        matrix.shape == matrix.T.shape and _is_scaled_block(matrix.T, original)
    )


def _is_scaled_block(matrix: np.ndarray, original: np.ndarray) -> bool:
    block, reference = (values[:_CORNER, :_CORNER].astype(np.float64) for values in (matrix, original))
    both = (block != 0) & (reference != 0)
    ratio = np.full(block.shape, np.nan)
    np.log(np.abs(np.divide(block, reference, out=ratio.copy(), where=both)), out=ratio, where=both)
    cross = ratio - ratio[:1] - ratio[:, :1] + ratio[:1, :1]
    known = cross[1:, 1:][np.isfinite(cross[1:, 1:])]
    return known.size > 0 and float(np.median(np.abs(known))) < _TOLERANCE
