"""Proof that a graph may be halved: measured ranges of every value, and half arithmetic emulated node by node.

CPU runtimes compute FP16 files in FP32, so an overflow that a GPU or NPU would meet never shows there. Here every value
that is to be half is measured in FP32 on real text, up to the longest length and with padding; nodes that come near the
end of half range join the FP32 islands. Then the halved graph runs with every half result rounded to half precision,
where an overflow is infinite and a lost bit is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from compressor.core.errors import StageError
from compressor.core.schema import Record, Text
from compressor.core.spread import spread
from compressor.core.task import is_token_output
from compressor.text import ATTENTION_MASK, INPUT_IDS, Batch
from export.calibration import Calibration
from export.onnx.half import to_half
from export.onnx.half_rules import Placement, is_float, place
from export.onnx.passes.finite_masks import HALF_MAX
from export.onnx.policy import module_path
from export.onnx.ranges import run_watched, session_of

MARGIN = 4.0
"""A value of which this multiple leaves half range is not computed in half: other text may reach higher."""
MAX_ERROR = 0.05
"""Largest error of the emulated logits, in units of their spread; float parity of the file itself is stricter."""
SENTENCES, LONG_SENTENCES = 64, 4
EMULATED_SENTENCES = 16
"""Of SENTENCES, besides the long ones: node by node, unfused, a graph takes several times as long."""
_WORST = 12


class Peak(Record):
    """The largest magnitude that one node reads or writes."""

    node: str
    module: str
    magnitude: float


class HalfAudit(Record):
    """What was measured and what followed from it; part of ``ranges.json``."""

    sentences: int
    longest_tokens: int
    margin: float = MARGIN
    half_max: float = HALF_MAX
    peaks: tuple[Peak, ...]
    """The nodes that half arithmetic was meant for, the largest magnitudes first."""
    widened: tuple[Peak, ...]
    """Those that stay FP32 because of it."""
    emulated_sentences: int
    """How many of the sentences ran with every half result rounded."""
    emulated_error: float
    """Largest error of the logits with every half result rounded to half, in units of their spread."""


def audited_half(
    model: ir.Model, calibration: Calibration, keep_fp32: Callable[[ir.Node], bool] = lambda node: False
) -> HalfAudit:
    """Halves a clean FP32 graph in place as :func:`to_half` does, with islands widened to what was measured.

    Args:
        model: the graph.
        calibration: real text; a sample of it is used, and joined sentences that fill the longest length.
        keep_fp32: names further nodes that stay FP32.

    Raises:
        StageError: half arithmetic still overflows, or moves the logits by more than ``MAX_ERROR`` of their spread.
    """
    sample, few = _sample(calibration, SENTENCES), _sample(calibration, EMULATED_SENTENCES)
    common.ShapeInferencePass()(model)
    peaks = _peaks(model, keep_fp32, sample)
    too_large = {node for node, peak in peaks.items() if peak.magnitude * MARGIN > HALF_MAX}
    reference = _outputs(model, few)
    to_half(model, lambda node: node in too_large or keep_fp32(node))
    found = _outputs(emulated(model), few)
    ordered = sorted(peaks.values(), key=lambda peak: -peak.magnitude)
    audit = HalfAudit(
        sentences=len(sample),
        emulated_sentences=len(few),
        longest_tokens=sample.lengths[-1],
        peaks=tuple(ordered[:_WORST]),
        widened=tuple(peak for peak in ordered if peak.magnitude * MARGIN > HALF_MAX),
        emulated_error=_error(found, reference),
    )
    _require(audit, found)
    return audit


def emulated(model: ir.Model) -> ir.Model:
    """Returns an FP32 graph that computes what half hardware would: each half result and weight is rounded to half.

    Args:
        model: a strongly typed FP16 graph, from :func:`export.onnx.half.to_half`.
    """
    copy = model.clone()  # its types and tensors are the model's own: replaced, never changed
    for value in copy.graph.initializers.values():
        if value.dtype is ir.DataType.FLOAT16 and value.const_value is not None:
            value.const_value = _in_full(value.const_value)
            value.type = ir.TensorType(ir.DataType.FLOAT)
    for node in list(copy.graph):
        if node.op_type == "Cast" and node.attributes.get_int("to", 0) == int(ir.DataType.FLOAT16):
            node.attributes["to"] = ir.AttrInt64("to", int(ir.DataType.FLOAT))
        for value in node.outputs:
            if value.dtype is ir.DataType.FLOAT16:
                value.type = ir.TensorType(ir.DataType.FLOAT)
                _round(copy.graph, node, value)
    return copy


def _in_full(tensor: ir.TensorProtocol) -> ir.LazyTensor:
    """Returns a half-precision tensor in FP32, made when it is read: all weights together would be a second model."""

    def load() -> ir.TensorProtocol:
        return ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name)

    return ir.LazyTensor(load, dtype=ir.DataType.FLOAT, shape=ir.Shape(tensor.shape.numpy()), name=tensor.name)


def _round(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Puts a cast to half and back behind a value."""
    uses = list(value.uses())
    down = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, name=f"{value.name}/round")
    up = ir.node("Cast", [down.outputs[0]], {"to": int(ir.DataType.FLOAT)}, name=f"{value.name}/rounded")
    down.outputs[0].name, up.outputs[0].name = f"{value.name}/round", f"{value.name}/rounded"
    graph.insert_after(node, [down, up])
    for use in uses:
        use.node.replace_input_with(use.idx, up.outputs[0])


def _peaks(model: ir.Model, keep_fp32: Callable[[ir.Node], bool], sample: Calibration) -> dict[ir.Node, Peak]:
    """Returns the largest magnitude around every node that would compute in half."""
    placement = place(model, keep_fp32)
    meant = [node for node in model.graph if placement[node] is Placement.HALF]
    around = {node: [v for v in (*node.inputs, *node.outputs) if is_float(v) and v is not None] for node in meant}
    computed = sorted({str(v.name) for values in around.values() for v in values if v.producer() is not None})
    largest: dict[str, float] = defaultdict(float)
    for extremes in run_watched(model, computed, sample, extremes=True, padded=True):
        for name, pair in extremes.items():
            largest[name] = max(largest[name], float(np.abs(pair).max()))
    for value in model.graph.initializers.values():
        if is_float(value) and value.const_value is not None:
            largest[str(value.name)] = float(np.abs(value.const_value.numpy()).max(initial=0.0))
    return {
        node: Peak(
            node=str(node.name),
            module=module_path(node),
            magnitude=max((largest[str(value.name)] for value in values), default=0.0),
        )
        for node, values in around.items()
    }


def _sample(calibration: Calibration, count: int) -> Calibration:
    """A spread of ``count`` texts, and some joined until they fill the longest length."""
    texts = [calibration.texts[at] for at in spread(len(calibration), count)]
    words = calibration.encoder.max_tokens
    joined = [
        _join(list(islice(cycle(texts), start, start + words))) for start in range(min(LONG_SENTENCES, len(texts)))
    ]
    return replace(calibration, texts=[*texts, *joined])


def _join(texts: list[Text]) -> Text:
    if isinstance(texts[0], tuple):
        return (" ".join(text[0] for text in texts), " ".join(text[1] for text in texts))
    return " ".join(str(text) for text in texts)


def _batches(sample: Calibration, names: list[str]) -> Iterator[Batch]:
    for batch in sample.batches():
        for row in range(len(batch[INPUT_IDS])):  # one by one: a TensorRT graph takes no more
            yield {name: batch[name][row : row + 1] for name in names}


def _outputs(model: ir.Model, sample: Calibration) -> dict[str, np.ndarray]:
    """Runs a graph as it is written, no node fused or left out; returns its outputs, of real tokens only."""
    session = session_of(model, optimize=False)
    types = {item.name: np.int32 if item.type == "tensor(int32)" else np.int64 for item in session.get_inputs()}
    found: dict[str, list[np.ndarray]] = {item.name: [] for item in session.get_outputs()}
    for batch in _batches(sample, list(types)):
        values = session.run(list(found), {name: array.astype(types[name]) for name, array in batch.items()})
        real = batch[ATTENTION_MASK].astype(bool)
        for name, array in zip(found, values, strict=True):
            found[name].append(array[real] if is_token_output(name, array.ndim) else array)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _error(found: dict[str, np.ndarray], reference: dict[str, np.ndarray]) -> float:
    """Returns the largest error of any output, in units of its own spread."""
    error = float(np.max([np.abs(found[n] - r).max() / (float(r.std()) or 1.0) for n, r in reference.items()]))
    return error if np.isfinite(error) else float(np.finfo(np.float64).max)


def _require(audit: HalfAudit, found: dict[str, np.ndarray]) -> None:
    worst = audit.peaks[0] if audit.peaks else None
    where = "" if worst is None else f"; the largest magnitude, {worst.magnitude:.4g}, stands at {worst.node}"
    if not all(np.isfinite(values).all() for values in found.values()):
        raise StageError(
            f"half arithmetic gives NaN or infinite logits on real text{where}; expected finite ones as in FP32",
            remedy="export fp32, or keep the modules around it in fp32 by rules of the policy",
        )
    if audit.emulated_error > MAX_ERROR:
        raise StageError(
            f"half arithmetic moves the logits by {audit.emulated_error:.2g} of their spread; expected at most "
            f"{MAX_ERROR}{where}",
            remedy="export fp32, or keep sensitive modules in fp32 by rules of the policy",
        )
