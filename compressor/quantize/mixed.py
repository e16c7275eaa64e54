"""Mixed precision: the most sensitive modules leave the integers, one after another, until the accuracy holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from torch import nn

from compressor.data.batches import EncodedSplit
from compressor.evaluation import evaluate_logits, predict_logits
from compressor.families import adapter_for
from compressor.quantize.fake import quantizable, quantized
from compressor.quantize.plan import ActivationRange, QuantizationPlan, Rule, Sensitivity

_MOST = 0.5
"""Share of the modules beyond which a file is no quantised one any more."""


def refinements(plan: QuantizationPlan, table: tuple[Sensitivity, ...]) -> Iterator[QuantizationPlan]:
    """Yields plans that keep 1, 2, 4, … of the most sensitive quantised modules in FP16, up to half of all.

    Args:
        plan: the plan that lost too much.
        table: as :func:`compressor.quantize.sensitivity.analyse` gives it.
    """
    candidates = [item.module for item in table if plan.precision_of(item.module) in ("int8", "int4")]
    kept = 1
    while kept <= max(1, int(_MOST * len(candidates))) and kept <= len(candidates):
        yield keep(plan, candidates[:kept], table)
        kept *= 2


def keep(plan: QuantizationPlan, modules: list[str], table: tuple[Sensitivity, ...]) -> QuantizationPlan:
    """Returns ``plan`` with rules that store some modules in FP16."""
    rules = tuple(Rule(pattern=path, precision="fp16") for path in modules)
    return plan.model_copy(update={"policy": (*plan.policy, *rules), "sensitivities": table})


def mixed_plan(
    model: nn.Module,
    data: EncodedSplit,
    plan: QuantizationPlan,
    table: tuple[Sensitivity, ...],
    *,
    limit_points: float,
    ranges: Mapping[str, ActivationRange] | None = None,
) -> QuantizationPlan:
    """Returns the plan with the fewest modules kept in FP16 whose simulated accuracy stays within the limit.

    A simulation: the converted file is judged again by the export ladder. Where no plan holds, the safest is returned.

    Args:
        model: a classifier in evaluation mode.
        data: labelled text to select on.
        plan: what to start from; returned as it is where it holds.
        table: the modules, the most sensitive first.
        limit_points: largest fall in percentage points.
        ranges: of the activations for a static plan; None: dynamic.
    """
    floor = evaluate_logits(predict_logits(model, data), data.labels).value - limit_points / 100
    chosen = plan.model_copy(update={"sensitivities": table})
    for candidate in (chosen, *refinements(chosen, table)):
        chosen = candidate
        if simulated_accuracy(model, data, chosen, ranges) >= floor - 1e-12:
            break
    return chosen


def simulated_accuracy(
    model: nn.Module, data: EncodedSplit, plan: QuantizationPlan, ranges: Mapping[str, ActivationRange] | None = None
) -> float:
    """Returns the accuracy of a model whose modules are rounded as a plan says; 0 where an answer is not finite."""
    bits = {path: _bits(plan.precision_of(path)) for path in quantizable(model)}
    if not plan.quantize_embeddings:
        del bits[adapter_for(model.config).word_embeddings]  # files keep the table as it is
    with quantized(model, {path: width for path, width in bits.items() if width}, ranges):
        logits = predict_logits(model, data)
    return evaluate_logits(logits, data.labels).value if np.isfinite(logits).all() else 0.0


def _bits(precision: str) -> int:
    return {"int8": 8, "int4": 4}.get(precision, 0)
