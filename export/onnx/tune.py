"""The clean graph rewritten with ONNX Runtime's own fused operators, kept only where that is measured to pay.

Fusion is pattern matching: it can succeed with nothing fused, it can store a copy of shared weights for every layer it
rewrites, and on many CPUs it gains no time. So what was fused is counted, a file that grows is not taken, and the clean
graph is itself a candidate: it stays unless the fused one wins a measurement in which the two take turns.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from compressor.core.errors import StageError
from compressor.core.schema import Record
from export.backend import Predictor
from export.onnx import files
from export.onnx.quiet import errors_only, root_errors_only
from export.parity import ParityCase

Measure = Callable[[Predictor, Predictor, Sequence[ParityCase]], float]
"""(candidate, baseline, padded sentences) to the candidate's time as a multiple of the baseline's."""

MAX_RATIO = 0.97
"""A gain below three hundredths is within what two runs of one file differ by."""
MAX_GROWTH = 1.02
PAIRS = 40
"""Timed pairs of runs; each pair runs both files on the same sentence."""
_WARM_UP = 4


class Fusion(Record):
    """What ONNX Runtime's optimiser made of a graph."""

    layers: int
    operators: dict[str, int]
    """Fused operators by name, those that occur."""
    bytes_before: int
    bytes_after: int
    note: str
    """Why no Attention, or not one a layer, was fused; empty where every layer has one."""

    @property
    def summary(self) -> str:
        """The counts in one line."""
        counts = ", ".join(f"{name} {count}" for name, count in self.operators.items()) or "nothing fused"
        return f"{counts}{f'; {self.note}' if self.note else ''}"


def fuse(source: Path, target: Path, *, layers: int, heads: int, hidden: int) -> Fusion:
    """Writes the fused form of a graph.

    Where fusing attention would store shared weights again (ALBERT: a packed copy of query, key and value a layer), the
    rest is fused without it.

    Args:
        source: a graph of this project, of any precision.
        target: the file to write.
        layers: number of encoder layers.
        heads: attention heads of a layer.
        hidden: width of the hidden states.

    Raises:
        StageError: the weights do not fit one file, or ONNX Runtime's optimiser fails.
    """
    before = files.stored_bytes(source)
    if len(files.model_files(source)) > 1:
        raise StageError("graphs with external data are not fused", remedy="use the clean graph")
    note = ""
    operators = _optimize(source, target, heads, hidden, attention=True)
    if files.stored_bytes(target) > MAX_GROWTH * before:
        grown = files.stored_bytes(target)
        operators = _optimize(source, target, heads, hidden, attention=False)
        note = f"attention left as it is: fused, {before / 1e6:.2f} MB would be {grown / 1e6:.2f} MB"
    fused = operators.get("Attention", 0) + operators.get("MultiHeadAttention", 0)
    if fused != layers and not note:
        note = f"attention in {fused} of {layers} layers: the others do not match the optimiser's pattern"
    return Fusion(
        layers=layers, operators=operators, bytes_before=before, bytes_after=files.stored_bytes(target), note=note
    )


def judge(fusion: Fusion, ratio: float | None) -> tuple[bool, str]:
    """Returns whether the fused graph replaces the clean one, and why.

    Args:
        fusion: what was fused.
        ratio: its time as a multiple of the clean graph's; None where it was not measured.
    """
    if not fusion.operators:
        return False, f"rolled back: {fusion.summary}"
    if fusion.bytes_after > MAX_GROWTH * fusion.bytes_before:
        return False, (
            f"rolled back: {fusion.bytes_before / 1e6:.2f} MB became {fusion.bytes_after / 1e6:.2f} MB, "
            f"shared weights are stored more than once ({fusion.summary})"
        )
    if ratio is None:
        return False, f"rolled back: not measured ({fusion.summary})"
    kept = ratio <= MAX_RATIO
    verdict = "kept" if kept else "rolled back"
    return kept, (
        f"{verdict}: {ratio:.3f} times the clean graph's time on this machine, at most {MAX_RATIO} pays "
        f"({fusion.summary})"
    )


def interleaved_ratio(candidate: Predictor, baseline: Predictor, cases: Sequence[ParityCase]) -> float:
    """Returns the median over pairs of runs of candidate time by baseline time, one sentence at a time.

    The two take turns and swap who goes first, so that whatever else the machine does meets both alike.
    """
    sentences = [
        {name: rows[index : index + 1] for name, rows in case.batch.items()}
        for case in cases
        for index in range(min(4, len(case.reference)))
    ]
    ratios = []
    for turn in range(_WARM_UP + PAIRS):
        batch = sentences[turn % len(sentences)]
        order = (candidate, baseline) if turn % 2 else (baseline, candidate)
        seconds: dict[int, float] = {}
        for predictor in order:
            start = time.perf_counter()
            predictor.run(batch)
            seconds[id(predictor)] = time.perf_counter() - start
        if turn >= _WARM_UP:
            ratios.append(seconds[id(candidate)] / seconds[id(baseline)])
    return statistics.median(ratios)


def _divide_scores(model: ir.Model) -> None:
    """Writes the scaling of attention scores as a division, in place.

    The optimiser looks for the mask behind the first multiplication it finds above a softmax, and where the scores are
    scaled by one too it takes that for the mask and gives up.
    """
    for add in model.graph:
        if add.op_type != "Add" or not any(use.node.op_type == "Softmax" for use in add.outputs[0].uses()):
            continue
        for value in add.inputs:
            scale = None if value is None else value.producer()
            if scale is None or scale.op_type != "Mul":
                continue
            first, factor = scale.inputs
            product = None if first is None else first.producer()
            constant = None if factor is None else factor.const_value
            if product is None or product.op_type != "MatMul" or constant is None or constant.size != 1:
                continue
            inverse = (1.0 / constant.numpy().astype(np.float64)).astype(constant.numpy().dtype)
            divisor = ir.Value(name=f"{scale.name}/divisor", const_value=ir.tensor(inverse))
            model.graph.register_initializer(divisor)
            scale.op_type = "Div"
            scale.replace_input_with(1, divisor)


def _optimize(source: Path, target: Path, heads: int, hidden: int, *, attention: bool) -> dict[str, int]:
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    options = FusionOptions("bert")
    options.enable_attention = attention
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            root_errors_only("onnxruntime"),
            errors_only("onnxruntime.transformers"),
        ):
            prepared = Path(folder) / source.name
            graph = files.load(source)
            _divide_scores(graph)
            files.save(graph, prepared)
            fused = optimizer.optimize_model(
                str(prepared), model_type="bert", num_heads=heads, hidden_size=hidden, opt_level=0,
                optimization_options=options,
            )  # fmt: skip
            found = fused.get_fused_operator_statistics()
            fused.save_model_to_file(str(target))
    except Exception as error:  # the optimiser raises whatever its passes stumble over
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise StageError(f"ONNX Runtime's optimiser fails on this graph: {first_line}", remedy="do not tune") from error
    return {name: int(count) for name, count in sorted(found.items()) if count}
