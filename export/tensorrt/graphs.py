"""Which graphs lie in an artifact's folder: the strongly typed one, and one for an older TensorRT that needs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from compressor.core.artifact import Precision
from compressor.core.errors import StageError
from compressor.core.hashing import sha256_file
from compressor.core.schema import Record
from compressor.core.task import is_token_output
from compressor.quantize.plan import QuantizationPlan
from compressor.text import ATTENTION_MASK, INPUT_IDS
from export.onnx import files
from export.onnx.inspection import gemm_nodes
from export.onnx.predictor import OnnxPredictor
from export.tensorrt.int8 import Quantized, insert_qdq, kept_full
from export.tensorrt.profiles import METADATA_KEY, from_text
from export.tensorrt.versions import (
    FIRST_LAYER_NORMALIZATION,
    FIRST_STRONGLY_TYPED,
    RANGE_KEY,
    Version,
    parse_range,
)
from export.tensorrt.weak import WEAK_OPSET, PinnedLayers, to_weak

WEAK_FILE = "model.trt8.onnx"
_OLDEST_WEAK: Version = (8, 0)
_PINNED_KEY = "compressor.pinned_layers"
_TOLERANCE = 1e-4
"""Largest difference of logits between two forms of one FP32 graph, in units of their spread."""


class BuildGraph(Record):
    """One ONNX file and the versions of TensorRT that build an engine from it."""

    model: str
    oldest: Version
    """The first version; the last is the one before the next graph's first."""
    sha256: dict[str, str]
    """Of the ONNX file and its external data."""
    products: dict[str, tuple[str, ...]]
    """Names of the matrix products by the type they are to be computed in: ``fp16``, ``int8``, ``fp32``."""
    pinned: PinnedLayers | None = None
    """For weakly typed builders: what to pin; None: the graph's own types say it."""


def oldest_typed(precision: Precision) -> Version:
    """Returns the first version that builds the strongly typed graph of this precision."""
    return FIRST_STRONGLY_TYPED if precision == "int8" else FIRST_LAYER_NORMALIZATION


def weak_graph_needed(source: ir.Model, precision: Precision) -> bool:
    """Returns whether the device that ``source`` was converted for may have a TensorRT too old for the typed graph."""
    text = source.metadata_props.get(RANGE_KEY)
    return text is not None and parse_range(text).oldest < oldest_typed(precision)


def write_weak_graph(
    source: Path,
    target: Path,
    precision: Precision,
    plan: QuantizationPlan,
    *,
    quantized: Quantized | None,
    widened: frozenset[str],
) -> None:
    """Writes the graph for TensorRT 8, and proves that it computes what ``source`` does.

    Args:
        source: the clean FP32 graph.
        target: where to write.
        precision: of the artifact; it decides what is pinned.
        plan: names the modules that stay in FP32.
        quantized: what gets Q/DQ, for INT8.
        widened: names of further nodes that stay in FP32, by measured ranges.

    Raises:
        StageError: the rewritten graph is not valid, or gives other logits.
    """
    model = files.load(source)
    full = kept_full(model, plan, precision) | widened
    names = frozenset(quantized.products) if quantized is not None else frozenset()
    pinned = to_weak(model, full, names)
    files.save(model, target)
    files.check(target, opset=WEAK_OPSET)
    _check_equal(source, target)
    if quantized is not None:
        insert_qdq(model, quantized, store_int8=False)
    model.metadata_props[_PINNED_KEY] = (PinnedLayers() if precision == "fp32" else pinned).model_dump_json()
    files.save(model, target)
    files.check(target, opset=WEAK_OPSET)


def graphs_in(folder: Path, precision: Precision) -> tuple[BuildGraph, ...]:
    """Returns the graphs in a folder, the one for the newest TensorRT first."""
    typed = _graph(folder / files.MODEL_FILE, oldest_typed(precision), None)
    weak = folder / WEAK_FILE
    if not weak.is_file():
        return (typed,)
    pinned = PinnedLayers.model_validate_json(files.load(weak).metadata_props[_PINNED_KEY])
    return (typed, _graph(weak, _OLDEST_WEAK, pinned))


def _graph(path: Path, oldest: Version, pinned: PinnedLayers | None) -> BuildGraph:
    products: dict[str, list[str]] = {}
    for name, kind in gemm_nodes(path).items():
        weak = "fp16" if pinned is not None and name in pinned.fp16 else kind
        products.setdefault(weak, []).append(name)
    return BuildGraph(
        model=path.name,
        oldest=oldest,
        sha256={file.name: sha256_file(file) for file in files.model_files(path)},
        products={kind: tuple(names) for kind, names in sorted(products.items())},
        pinned=pinned,
    )


def _check_equal(source: Path, target: Path) -> None:
    """Runs both graphs on made-up ids at every profile's shortest and longest length."""
    profiles = from_text(files.load(source).metadata_props.get(METADATA_KEY, ""))
    lengths = sorted({length for profile in profiles for length in (profile.min_tokens, profile.max_tokens)}) or [8]
    draw = np.random.default_rng(0)
    predictors = [OnnxPredictor(path, threads=1, fixed_batch=1) for path in (source, target)]
    expected: dict[str, list[np.ndarray]] = {}
    found: dict[str, list[np.ndarray]] = {}
    for length in lengths:
        mask = np.ones((1, length), dtype=np.int64)
        mask[:, length - length // 4 :] = 0
        batch = {INPUT_IDS: draw.integers(0, _smallest_vocabulary(source), (1, length)), ATTENTION_MASK: mask}
        for predictor, kept in zip(predictors, (expected, found), strict=True):
            for name, values in predictor.run(batch).items():
                real = values[mask.astype(bool)] if is_token_output(name, values.ndim) else values
                kept.setdefault(name, []).append(real)
    error = float(np.max([_relative(np.concatenate(found[n]), np.concatenate(e)) for n, e in expected.items()]))
    if not error <= _TOLERANCE:
        raise StageError(
            f"{target.name}, the graph for TensorRT 8, differs from {source.name} by {error:.2e} of the logits' "
            f"spread; expected at most {_TOLERANCE:.0e}",
            remedy="report this model",
        )


def _relative(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max()) / (float(expected.std()) or 1.0)


def _smallest_vocabulary(path: Path) -> int:
    """Returns how many ids surely exist: the rows of the table that the token ids look up."""
    for node in files.load(path).graph:
        if node.op_type != "Gather" or node.inputs[0] is None or node.inputs[0].const_value is None:
            continue
        ids = node.inputs[1]
        cast = ids.producer() if ids is not None else None
        if cast is not None and cast.op_type == "Cast":
            ids = cast.inputs[0]
        if ids is not None and ids.name == INPUT_IDS:
            return node.inputs[0].const_value.shape.numpy()[0]
    return 1
