"""What is found in a TFLite file, whoever made it: precision, sizes, sharing, operators, entry points."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from compressor.core.artifact import ModelStatistics, Precision, Signature, TensorSpec
from compressor.core.errors import ArtifactError
from compressor.core.task import output_roles
from compressor.text import ATTENTION_MASK, CANONICAL_INPUTS, INPUT_IDS, TOKEN_TYPE_IDS
from export.tflite.flatbuffer import LOOKUPS, is_constant, operator_name, read, shape_of, text, type_names, weight_uses

_MAJORITY = 0.9
"""Share of the GEMM weights that must have a type for the file to be called by it."""
_PARAMETER_TYPES = frozenset({"float64", "float32", "float16", "bfloat16", "int8", "uint8", "int4", "int2"})
"""Types that hold parameters; wider integers hold shapes, axes and indices."""
_INTEGERS = frozenset({"int8", "uint8", "int4", "int2"})
_WEIGHT_ONLY = "weight-only"
"""Stands for weights that are stored as integers and multiplied as floats; no precision is called so."""
_PRECISIONS: dict[str, Precision] = {"float32": "fp32", "float16": "fp16", "int8": "int8", "int4": "int4"}
_DTYPES = frozenset({"int32", "int64", "float32", "float16", "int8", "uint8"})


def inspect_model(path: Path) -> ModelStatistics:
    """Returns the statistics of a file.

    ``parameters`` and ``unique_parameter_bytes`` count each stored constant once, however many operators and lengths
    read it; ``operators`` counts over all entry points; ``gemm_types`` counts the operators that multiply by a stored
    weight matrix. Half-precision weights behind a DEQUANTIZE are ``fp16``, for that is how every FP16 file stores them
    and the delegate decides what it computes in; integers behind one (weight-only quantisation) are multiplied as what
    they were widened to, so they count as ``fp32`` and such a file is ``mixed``, never ``int8``.

    Raises:
        ArtifactError: no TFLite file, or a damaged one.
    """
    model = read(path)
    try:
        return _statistics(model, path)
    except (IndexError, TypeError, AttributeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error}", remedy="copy or convert it again") from error


def read_signatures(path: Path) -> tuple[Signature, ...]:
    """Returns the entry points of a file, shortest first.

    Raises:
        ArtifactError: no TFLite file, a damaged one, or one without signatures.
    """
    model = read(path)
    if not model.signatureDefs:
        raise ArtifactError(
            f"{path} has no signatures; expected named inputs and outputs",
            remedy="convert it again: without names an input's place in the list would be a guess",
        )
    found = [_signature(model, definition) for definition in model.signatureDefs]
    return tuple(sorted(found, key=lambda signature: (signature.length or 0, signature.key or "")))


def _statistics(model: Any, path: Path) -> ModelStatistics:
    operators: Counter[str] = Counter()
    parameters: dict[int, tuple[int, int, str]] = {}
    names = type_names()
    for graph in model.subgraphs:
        operators.update(operator_name(model, operator) for operator in graph.operators or ())
        for tensor in graph.tensors or ():
            if names[tensor.type] in _PARAMETER_TYPES and is_constant(model, tensor):
                elements = int(np.prod(shape_of(tensor)))
                kind = names[tensor.type]
                size = len(model.buffers[tensor.buffer].data)
                parameters[int(tensor.buffer)] = (elements, size, _PRECISIONS.get(kind, kind))
    gemm_types: Counter[str] = Counter()
    operator_types: dict[str, Counter[str]] = {}
    weights: dict[int, tuple[str, int]] = {}
    for use in weight_uses(model):
        kind = names[use.tensor.type]
        operator_types.setdefault(use.name, Counter())[_PRECISIONS.get(kind, kind)] += 1
        if use.name not in LOOKUPS:
            stored, read_as = names[use.tensor.type], names[use.operand.type]
            weight_only = stored in _INTEGERS and read_as not in _INTEGERS
            kind = read_as if weight_only else stored
            gemm_types[_PRECISIONS.get(kind, kind)] += 1
            weights[use.buffer] = (_WEIGHT_ONLY if weight_only else kind, use.elements)
    by_type: Counter[str] = Counter()
    for _, size, kind in parameters.values():
        by_type[kind] += size
    lengths = {_length(model, definition) for definition in model.signatureDefs or ()}
    return ModelStatistics(
        format="tflite",
        precision=_precision(weights),
        size_bytes=path.stat().st_size,
        unique_parameter_bytes=by_type.total(),
        parameters=sum(elements for elements, _, _ in parameters.values()),
        lengths=tuple(sorted(length for length in lengths if length is not None)),
        operators=dict(sorted(operators.items())),
        gemm_types=dict(sorted(gemm_types.items())),
        operator_types={name: dict(sorted(found.items())) for name, found in sorted(operator_types.items())},
        parameter_bytes=dict(sorted(by_type.items())),
    )


def _precision(weights: dict[int, tuple[str, int]]) -> Precision:
    """Returns the type of at least 90 % of the GEMM weights, each stored matrix counted once; else ``mixed``."""
    elements: Counter[str] = Counter()
    for kind, count in weights.values():
        elements[kind] += count
    if not elements:
        return "fp32"
    kind, count = elements.most_common(1)[0]
    return _PRECISIONS.get(kind, "mixed") if count >= _MAJORITY * elements.total() else "mixed"


def _signature(model: Any, definition: Any) -> Signature:
    inputs, outputs = (_specs(model, definition, side) for side in (definition.inputs, definition.outputs))
    return Signature(
        key=text(definition.signatureKey),
        length=_length(model, definition),
        inputs=inputs,
        outputs=outputs,
        roles=_roles([spec.name for spec in inputs]),
        output_roles=output_roles([spec.name for spec in outputs]),
    )


def _specs(model: Any, definition: Any, entries: Any) -> tuple[TensorSpec, ...]:
    graph = model.subgraphs[definition.subgraphIndex]
    specs = []
    for entry in entries:
        tensor = graph.tensors[entry.tensorIndex]
        dtype = type_names()[tensor.type]
        if dtype not in _DTYPES:
            raise ArtifactError(
                f"'{text(entry.name)}' is of type {dtype}; expected one of {', '.join(sorted(_DTYPES))}",
                remedy="this file is no text classifier that can be fed from token ids",
            )
        specs.append(TensorSpec.model_validate({"name": text(entry.name), "dtype": dtype, "shape": shape_of(tensor)}))
    return tuple(sorted(specs, key=lambda spec: _order(spec.name)))


def _order(name: str) -> tuple[int, str]:
    return (CANONICAL_INPUTS.index(name) if name in CANONICAL_INPUTS else len(CANONICAL_INPUTS), name)


def _roles(names: list[str]) -> dict[str, str]:
    """Maps canonical input names to the file's own, by the words in them; files of other converters vary."""
    words = {INPUT_IDS: ("input_ids", "input_word_ids", "ids"), ATTENTION_MASK: ("mask",)}
    words[TOKEN_TYPE_IDS] = ("token_type", "segment", "type_ids")
    roles: dict[str, str] = {}
    for canonical in (ATTENTION_MASK, TOKEN_TYPE_IDS, INPUT_IDS):
        free = [name for name in names if name not in roles.values()]
        match = [name for word in words[canonical] for name in free if word in name]
        if match:
            roles[canonical] = match[0]
    return {canonical: roles[canonical] for canonical in CANONICAL_INPUTS if canonical in roles}


def _length(model: Any, definition: Any) -> int | None:
    """Returns the number of tokens of an entry point: the last dimension of its inputs, where it is fixed."""
    graph = model.subgraphs[definition.subgraphIndex]
    widths = set()
    for entry in definition.inputs:
        tensor = graph.tensors[entry.tensorIndex]
        signature = tensor.shapeSignature
        shape = shape_of(tensor) if signature is None or not len(signature) else tuple(map(int, signature))
        widths.add(shape[-1] if len(shape) == 2 else None)
    width = widths.pop() if len(widths) == 1 else None
    return width if width is not None and width > 0 else None
