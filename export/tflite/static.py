"""Ranges of activations in a TFLite file, found on text at every length, for INT8 with fixed ranges.

The tensor that an operator reads or writes exists once a length. Ranges are merged over the lengths: they describe the
module, not the padding it ran with, and equal ranges are stored once. A length that no sentence reached is served too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from compressor.core.errors import StageError
from compressor.quantize.observers import Observer, ObserverName, make_observer
from compressor.quantize.plan import ActivationRange
from export.calibration import Calibration
from export.memory import return_freed_memory
from export.tflite.flatbuffer import is_constant, operator_name, shape_of, text, type_names, weight_uses
from export.tflite.quiet import quiet_native

Statistics = dict[str, dict[str, np.ndarray]]
"""Tensor name to ``min`` and ``max``, arrays of the tensor's rank with one element: what ai-edge-quantizer takes."""

_Place = tuple[int, str, int]
"""Number of an operator in its subgraph, ``in`` or ``out``, position among its inputs or outputs."""


def observe(
    content: bytes, converted: Any, operators: frozenset[str], calibration: Calibration, observer: ObserverName
) -> Statistics:
    """Runs the float file over text and returns the ranges of what some operators read and write.

    One sentence is held at a time, and of every tensor what its observer keeps.

    Args:
        content: the float file.
        converted: its ``ModelT``, every tensor with a name of its own.
        operators: builtin names of the operators whose inputs and outputs are observed.
        calibration: the text.
        observer: how a range is found; see :mod:`compressor.quantize.observers`.

    Raises:
        StageError: an activation is not finite, or the lengths do not have the same operators.
    """
    from ai_edge_litert.interpreter import Interpreter

    places = {index: dict(_places(converted, index, operators)) for index in range(len(converted.subgraphs))}
    if len({tuple(found) for found in places.values()}) != 1:
        raise StageError(
            "the lengths of this TFLite file do not have the same operators, so their ranges cannot be merged",
            remedy="convert one length at a time, or use dynamic INT8",
        )
    graphs = {text(entry.signatureKey): int(entry.subgraphIndex) for entry in converted.signatureDefs}
    with quiet_native():
        interpreter = Interpreter(model_content=content, num_threads=1, experimental_preserve_all_tensors=True)
        interpreter.allocate_tensors()
        runners = {key: interpreter.get_signature_runner(key) for key in graphs}
    by_length = {_width(runner): key for key, runner in runners.items()}
    observers: dict[_Place, Observer] = {}
    for batch in calibration.batches():
        rows, length = next(iter(batch.values())).shape
        key = by_length[length]
        wanted = runners[key].get_input_details()
        for row in range(rows):
            # Ids stay integers: a range found on ids read as floats would be a range of nothing.
            runners[key](**{name: batch[name][row : row + 1].astype(np.int32) for name in wanted})
            for place, tensor in places[graphs[key]].items():
                values = interpreter.get_tensor(tensor, graphs[key])
                if not np.isfinite(values).all():
                    raise StageError(
                        "an activation is not finite on the calibration text", remedy="check the model in FP32"
                    )
                observers.setdefault(place, make_observer(observer)).update(values)
    del runners, interpreter
    return_freed_memory()
    ranges = {place: found.range() for place, found in observers.items()}
    return {
        text(converted.subgraphs[graph].tensors[tensor].name): _statistic(
            converted, graph, tensor, (ranges[place].low, ranges[place].high)
        )
        for graph, found in places.items()
        for place, tensor in found.items()
    }


def given(
    converted: Any, statistics: Statistics, modules: Mapping[int, str], ranges: Mapping[str, ActivationRange]
) -> None:
    """Puts ranges that training found in the place of observed ones, for the linear layers that it names.

    Args:
        converted: the ``ModelT`` with the names used in ``statistics``.
        statistics: changed in place.
        modules: buffer of a weight to its module.
        ranges: by module path.
    """
    for use in weight_uses(converted):
        known = ranges.get(modules.get(use.buffer, ""))
        if known is None or use.name != "FULLY_CONNECTED":
            continue
        for index, limits in ((use.operator.inputs[0], known.input), (use.operator.outputs[0], known.output)):
            name = text(converted.subgraphs[use.subgraph].tensors[int(index)].name)
            statistics[name] = _statistic(converted, use.subgraph, int(index), limits)


def _places(converted: Any, index: int, operators: frozenset[str]) -> Iterator[tuple[_Place, int]]:
    graph = converted.subgraphs[index]
    for number, operator in enumerate(graph.operators):
        if operator_name(converted, operator) in operators:
            for side, tensors in (("in", operator.inputs), ("out", operator.outputs)):
                for position, tensor in enumerate(map(int, tensors)):
                    found = graph.tensors[tensor] if tensor >= 0 else None
                    if (
                        found is not None
                        and type_names()[found.type] == "float32"
                        and not is_constant(converted, found)
                    ):
                        yield (number, side, position), tensor


def _statistic(converted: Any, graph: int, tensor: int, limits: tuple[float, float]) -> dict[str, np.ndarray]:
    shape = (1,) * len(shape_of(converted.subgraphs[graph].tensors[tensor]))
    return {"min": np.full(shape, limits[0], np.float32), "max": np.full(shape, limits[1], np.float32)}


def _width(runner: Any) -> int:
    return int(next(iter(runner.get_input_details().values()))["shape"][-1])
