"""Which module of the PyTorch model each stored weight belongs to, kept in the file itself.

A quantisation policy speaks of module paths (``bert.encoder.layer.0.output.dense``); a TFLite file knows buffers. The
converter's tensor names still say where an operator came from, so the paths are worked out once, right after
conversion, and stored as a small metadata entry. The names can then go.
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
from export.tflite.flatbuffer import WeightUse, shape_of, text, weight_uses

ENTRY = b"compressor.modules"
"""Name of the metadata entry: zlib-compressed JSON ``{"modules": [path], "weights": {buffer: index into modules}}``."""


@dataclass(frozen=True)
class ModuleMap:
    """Module paths of a converted model."""

    modules: tuple[str, ...]
    """Every module with parameters of its own, in the model's order."""
    weights: Mapping[int, str]
    """Buffer index of a weight matrix to the path of its module."""


def find_modules(converted: Any, model: nn.Module) -> ModuleMap:
    """Returns the module map of a freshly converted file whose tensors still have the converter's names.

    Most weights are stored as they were and are recognised by their bytes. The converter folds some (a factor that
    follows a linear layer is multiplied into it); those are placed by name: litert-torch names a tensor
    ``pkg.ClassA_outer/pkg.ClassB_inner;`` after the modules being called, and joins the names of operators it merges.

    Args:
        converted: the ``ModelT``.
        model: the PyTorch model, as the wrapper's direct child.
    """
    owners = {path: module for path, module in model.named_modules() if _own_parameters(module)}
    by_content = {
        sha256_bytes(parameter.detach().numpy().tobytes()): path
        for path, module in reversed(owners.items())
        for parameter in module.parameters(recurse=False)
        if parameter.dim() >= 2
    }
    uses = {use.buffer: use for use in weight_uses(converted)}
    digests = {buffer: sha256_bytes(converted.buffers[buffer].data.tobytes()) for buffer in uses}
    weights = {buffer: by_content[digest] for buffer, digest in digests.items() if digest in by_content}
    called = {_called_path(model, path): path for path, _ in model.named_modules()}
    for buffer in uses.keys() - weights.keys():
        path = _path_by_name(converted, uses[buffer], called, owners, taken=frozenset(weights.values()))
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


def _path_by_name(
    converted: Any,
    use: WeightUse,
    called: Mapping[tuple[str, ...], str],
    owners: Mapping[str, nn.Module],
    *,
    taken: frozenset[str],
) -> str | None:
    """Returns the path that the names around one weight point to; a joined name ends with the operator's own."""
    tensors = converted.subgraphs[use.subgraph].tensors
    names = [text(use.tensor.name), *(text(tensors[int(index)].name) for index in use.operator.outputs)]
    parts = [part for name in names for part in reversed(name.split(";"))]
    candidates = [path for part in parts if (path := called.get(_attributes(part))) is not None]
    for path in candidates:
        if path not in taken and path in owners and _may_hold(owners[path], shape_of(use.tensor)):
            return path
    return max(candidates, key=len, default=None)


def _attributes(name: str) -> tuple[str, ...]:
    """Returns the attribute names in ``pkg.Wrapper/pkg.Model_model/pkg.Linear_dense`` below the wrapped model."""
    parts = (part.rpartition(".")[2].partition("_")[2] for part in name.split("/"))
    return tuple(parts)[2:]


def _called_path(model: nn.Module, path: str) -> tuple[str, ...]:
    """Returns the components of ``path`` that are modules one calls: all but the lists."""
    kept = []
    module = model
    for component in path.split(".") if path else ():
        module = module.get_submodule(component)
        if not isinstance(module, nn.ModuleList):
            kept.append(component)
    return tuple(kept)


def _own_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters(recurse=False))


def _may_hold(module: nn.Module, shape: tuple[int, ...]) -> bool:
    """Returns whether a weight of this size is one of the module's parameters."""
    return any(parameter.numel() == np.prod(shape) for parameter in module.parameters(recurse=False))
