"""Ranges of a graph's tensors on calibration text: one sentence at a time, in memory that no number of sentences grows.

Padding: a sentence runs alone and without its padding, so no statistic holds a value that cannot reach an answer (a
padded position's activations, a masked score). A graph whose length is fixed gets each sentence padded to it, and then
the padded positions count like the others, as they do when it runs.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from compressor.core.errors import DataError, StageError, UsageError
from compressor.quantize.observers import Observer, ObserverName, Range, make_observer
from compressor.text import ATTENTION_MASK, INPUT_IDS, Batch
from export.calibration import Calibration

logger = logging.getLogger(__name__)

UNKNOWN_SHARE = 0.2
"""Above this share of unknown tokens the text is taken for another language than the model's."""
_ERRORS_ONLY = 3
_LOW, _HIGH = "/observed_low", "/observed_high"


def collect_ranges(
    model: ir.Model,
    tensors: Sequence[str],
    calibration: Calibration,
    observer: ObserverName = "minmax",
    *,
    bits: int = 8,
    symmetric: bool = False,
) -> dict[str, Range]:
    """Returns the range of each tensor over all calibration sentences.

    Args:
        model: a float graph with dynamic length or a fixed one; it is the same afterwards.
        tensors: names of float values that nodes compute.
        calibration: real text; see the module's notes on padding.
        observer: see :mod:`compressor.quantize.observers`.
        bits: width of the integers the range is for.
        symmetric: whether zero is to be the middle of the range.

    Raises:
        UsageError: there is no calibration text.
        DataError: the text has token ids that the model has no embedding for.
        StageError: a tensor reaches NaN or infinity.
    """
    observers = observe(model, tensors, calibration, observer)
    return {name: found.range(bits, symmetric) for name, found in observers.items()}


def observe(
    model: ir.Model, tensors: Sequence[str], calibration: Calibration, observer: ObserverName
) -> dict[str, Observer]:
    """Returns one observer a tensor, after all calibration sentences; arguments and errors as `collect_ranges`."""
    observers = {name: make_observer(observer) for name in dict.fromkeys(tensors)}
    if not len(calibration):
        raise UsageError("there is no calibration text; expected some sentences", remedy="pass --calibrate FILE")
    if not observers:
        return {}
    reduced = next(iter(observers.values())).needs_extremes_only
    for values in run_watched(model, list(observers), calibration, extremes=reduced):
        for name, array in values.items():
            observers[name].update(array)
    return observers


def run_watched(
    model: ir.Model,
    tensors: Sequence[str],
    calibration: Calibration,
    *,
    extremes: bool,
    padded: bool = False,
) -> Iterator[dict[str, np.ndarray]]:
    """Yields, sentence by sentence, the values of ``tensors``; raises as :func:`collect_ranges`.

    Args:
        model: the graph.
        tensors: names of float values.
        calibration: the sentences.
        extremes: the graph itself reduces every tensor to ``[smallest, largest]``, so that no whole tensor leaves it.
        padded: each sentence keeps the padding of its length bucket.
    """
    session = _watching_session(model, tensors, extremes=extremes)
    wanted = [name + end for name in tensors for end in (_LOW, _HIGH)] if extremes else list(tensors)
    for feed in _sentences(session.get_inputs(), calibration, padded=padded):
        try:
            found = session.run(wanted, feed)
        except Exception as error:  # ONNX Runtime's error classes have no common base
            raise DataError(
                f"the calibration text does not run: {str(error).strip().splitlines()[-1][:200]} (token ids from "
                f"{feed[INPUT_IDS].min()} to {feed[INPUT_IDS].max()}); expected ids of this model's own vocabulary",
                remedy="use the tokenizer the model was trained with",
            ) from error
        if extremes:
            found = [np.stack(pair) for pair in zip(found[::2], found[1::2], strict=True)]
        values = dict(zip(tensors, found, strict=True))
        _require_finite(values)
        yield values


def _watching_session(model: ir.Model, tensors: Sequence[str], *, extremes: bool) -> Any:
    """A session of ``model`` that returns ``tensors`` (or their extremes) as well; the model is left as it was."""
    copy = model.clone()
    graph = copy.graph
    values = {str(value.name): value for node in graph for value in node.outputs}
    for name in tensors:
        if not extremes:
            if values[name] not in graph.outputs:
                graph.outputs.append(values[name])
            continue
        for operator, end in (("ReduceMin", _LOW), ("ReduceMax", _HIGH)):
            reduced = ir.node(operator, [values[name]], {"keepdims": 0}, name=name + end)
            reduced.outputs[0].name = name + end
            reduced.outputs[0].type, reduced.outputs[0].shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([])
            graph.append(reduced)
            graph.outputs.append(reduced.outputs[0])
    return session_of(copy)


def session_of(model: ir.Model, *, optimize: bool = True) -> Any:
    """Returns a one-thread session of a model in memory; the arena is off, so memory goes back after each run.

    Args:
        model: the graph; weights of any size. They go to a file of their own, which ONNX Runtime maps, not copies.
        optimize: whether ONNX Runtime may fuse and leave out nodes.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    if not optimize:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # a mapped file may not be deletable yet
        path = Path(folder) / "model.onnx"
        ir.save(model, path, external_data="model.data")
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _sentences(inputs: Sequence[Any], calibration: Calibration, *, padded: bool) -> Iterator[Batch]:
    """Yields feeds of one sentence each: (1, its own tokens), or (1, the graph's fixed or the bucket's length)."""
    types = {item.name: np.int32 if item.type == "tensor(int32)" else np.int64 for item in inputs}
    fixed = next((item.shape[1] for item in inputs if isinstance(item.shape[1], int)), None)
    fill = {INPUT_IDS: calibration.encoder.pad_id}
    unknown = tokens = 0
    for batch in calibration.batches():
        for row, mask in enumerate(batch[ATTENTION_MASK]):
            length = int(mask.sum())
            tokens += length
            unknown += int((batch[INPUT_IDS][row, :length] == calibration.encoder.unknown_id).sum())
            if fixed is not None and length > fixed:
                raise UsageError(
                    f"a calibration sentence has {length} tokens; the graph takes exactly {fixed}",
                    remedy=f"calibrate with lengths up to {fixed}",
                )
            padding = (0, (fixed or (len(mask) if padded else length)) - length)
            yield {
                name: np.pad(batch[name][row, :length], padding, constant_values=fill.get(name, 0))[None].astype(dtype)
                for name, dtype in types.items()
            }
    if unknown > UNKNOWN_SHARE * tokens:
        logger.warning(
            "%.0f %% of the calibration text's tokens are unknown to the model; expected text in its own language",
            100 * unknown / tokens,
        )


def _require_finite(values: Mapping[str, np.ndarray]) -> None:
    for name, array in values.items():
        if not np.isfinite(array).all():
            raise StageError(
                f"'{name}' reaches NaN or infinity on the calibration text; expected finite activations",
                remedy="check the weights: the FP32 model itself is not sound on this text",
            )
