"""The precision ladder: which precision is tried next when a converted file misses its limit."""

from __future__ import annotations

from compressor.core.artifact import Precision
from compressor.core.schema import Record
from compressor.quantize.plan import QuantizationPlan


class Rung(Record):
    """One try: a precision and the plan it is made with."""

    name: str
    precision: Precision
    plan: QuantizationPlan


class Attempt(Record):
    """What became of a rung."""

    rung: str
    precision: str
    value: float | None = None
    """Metric of the converted file on the selection split, a fraction."""
    drop_points: float | None = None
    """Percentage points below the checkpoint that is exported, on the same split."""
    accepted: bool
    reason: str


def rungs(precision: Precision, plan: QuantizationPlan) -> tuple[Rung, ...]:
    """Returns the tries for a requested precision, the smallest file first, each safer than the one before.

    Without a limit on the accuracy (``plan.max_drop_points`` is None) there is only the request itself.
    """
    first = Rung(
        name=f"{precision} {plan.method}" if precision == "int8" else precision, precision=precision, plan=plan
    )
    if plan.max_drop_points is None or precision == "fp32":
        return (first,)
    safer: list[Rung] = []
    if precision == "int4":
        safer.append(Rung(name=f"int8 {plan.method}", precision="int8", plan=plan))
    if precision in ("int8", "int4"):
        if plan.quantize_embeddings:
            kept = plan.model_copy(update={"quantize_embeddings": False})
            safer.append(Rung(name=f"int8 {plan.method}, embeddings fp32", precision="int8", plan=kept))
        safer.append(Rung(name="fp16", precision="fp16", plan=plan))
    return (first, *safer)


def judge_drop(value: float, checkpoint: float, plan: QuantizationPlan) -> tuple[float, bool]:
    """Returns the drop in percentage points (a limit met exactly holds, rounding apart) and whether it is allowed."""
    drop = round(100 * (checkpoint - value), 9)
    return drop, plan.max_drop_points is None or drop <= plan.max_drop_points
