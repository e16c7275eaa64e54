"""The precision ladder: which precision is tried next when a converted file misses its limit."""

from __future__ import annotations

from collections.abc import Sequence

from compressor.core.artifact import Precision
from compressor.core.device import CPU_LADDER, LadderStep
from compressor.core.schema import Record
from compressor.quantize.plan import Method, QuantizationPlan

_METHODS: dict[LadderStep, Method] = {"int8-dynamic": "dynamic", "int8-static": "static"}
_BITS = ("int8", "int4")


class Rung(Record):
    """One try: a precision and the plan it is made with."""

    name: str
    precision: Precision
    plan: QuantizationPlan
    mixed: bool = False
    """The plan's policy is still to be refined: modules leave INT8, the most sensitive first, until the limit holds."""


class Attempt(Record):
    """What became of a rung."""

    rung: str
    precision: str
    value: float | None = None
    """Metric of the converted file on the selection split, a fraction."""
    drop_points: float | None = None
    """Percentage points below the checkpoint that is exported, on the same split."""
    expected_calibration_error: float | None = None
    """Of the converted file on the selection split (15 bins)."""
    p95_ms: float | None = None
    """Per sentence, where candidates were measured."""
    accepted: bool
    reason: str


def rungs(
    precision: Precision,
    plan: QuantizationPlan,
    ladder: Sequence[LadderStep] = CPU_LADDER,
    *,
    start: LadderStep | None = None,
    baseline: bool = False,
) -> tuple[Rung, ...]:
    """Returns the tries for a requested precision: the request itself, then what the device's ladder holds beside it.

    Without a limit on the accuracy (``plan.max_drop_points`` is None) there is only the request itself. INT4 falls to
    INT8, INT8 to FP16. A mixed try refines the plan of the INT8 try before it.

    Args:
        precision: what was asked for.
        plan: how; its method is tried first.
        ladder: the device's order.
        start: the way of INT8 to try first; None: the plan's method.
        baseline: end with the untouched FP32 file, for a search that ranks candidates by their time.
    """
    wanted = plan.at(precision)
    first = _rung(start if start and precision == "int8" else _first_step(precision, wanted), wanted)
    if plan.max_drop_points is None or precision == "fp32":
        return (first,)
    tries = [first]
    for step in ladder:
        found = step_precision(step)
        if found == "fp32" or _rank(found) > _rank(precision):
            continue
        if step == "int8-mixed":
            before = next((item.plan for item in reversed(tries) if item.precision in _BITS), wanted)
            tries.append(_rung(step, before.at("int8")))
        else:
            tries.append(_rung(step, wanted.at(found)))
    # Whatever the order in which a device likes its precisions, a fallback is never less safe than the request.
    ordered = [item for item in tries if item.precision in _BITS] + [item for item in tries if item.precision == "fp16"]
    if baseline:
        ordered.append(Rung(name="fp32", precision="fp32", plan=plan))
    return tuple({item.name: item for item in ordered}.values())


def npu_rungs(precision: Precision, plan: QuantizationPlan, offered: tuple[Precision, ...]) -> tuple[Rung, ...]:
    """Returns the tries for an NPU: what it computes in, smallest first, from ``precision`` on.

    Without a limit on the accuracy there is only the request itself, as everywhere.
    """
    start = offered.index(precision) if precision in offered else len(offered)
    safer = () if plan.max_drop_points is None else offered[start + 1 :]
    return tuple(Rung(name=item, precision=item, plan=plan.at(item)) for item in (precision, *safer))


def judge_drop(value: float, checkpoint: float, plan: QuantizationPlan) -> tuple[float, bool]:
    """Returns the drop in percentage points (a limit met exactly holds, rounding apart) and whether it is allowed."""
    drop = round(100 * (checkpoint - value), 9)
    return drop, plan.max_drop_points is None or drop <= plan.max_drop_points


def first_method(ladder: Sequence[LadderStep]) -> Method:
    """Returns the way of INT8 that a device's ladder names first; dynamic where it names none."""
    return next((_METHODS[step] for step in ladder if step in _METHODS), "dynamic")


def _first_step(precision: Precision, plan: QuantizationPlan) -> LadderStep:
    if precision == "int8":
        return "int8-static" if plan.method == "static" else "int8-dynamic"
    return "fp32" if precision in ("fp32", "mixed") else "int4" if precision == "int4" else "fp16"


def _rung(step: LadderStep, plan: QuantizationPlan) -> Rung:
    if step in _METHODS:
        plan = plan.model_copy(update={"method": _METHODS[step]})
    name = f"{step.replace('-', ' ')} on {plan.method}" if step == "int8-mixed" else step.replace("-", " ")
    return Rung(name=name, precision=step_precision(step), plan=plan, mixed=step == "int8-mixed")


def step_precision(step: LadderStep) -> Precision:
    """Returns the precision of a step, whatever the way to it."""
    if step in ("int8-static", "int8-mixed", "int8-dynamic"):
        return "int8"
    return "int4" if step == "int4" else "fp16" if step == "fp16" else "fp32"


def _rank(precision: Precision) -> int:
    return {"fp32": 0, "mixed": 0, "fp16": 1, "int8": 2, "int4": 3}[precision]
