"""What a quantisation plan means, the same for every format.

A rule speaks of modules by dotted path and decides how the weight matrices of a module are stored:

- ``fp32``: as they are;
- ``fp16``: in half precision. In an FP16 file the module is half like the others; in an INT8 file its weights are
  stored half and the runtime computes as it does with such weights (ONNX Runtime and LiteRT widen them on a CPU);
- ``int8``: in eight bits, in an INT8 or INT4 file;
- ``int4``: in four bits, in an INT4 file; lookup tables get eight there.

A rule for less than the file's own precision means the file's: ``int8`` in an FP16 file is ``fp16``.

The last rule that matches a module wins, and a module that no rule matches stays in ``fp32``.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from compressor.core.artifact import PRECISIONS, Precision
from compressor.core.errors import UsageError, nearest
from compressor.quantize.plan import QuantizationPlan


def check_policy(plan: QuantizationPlan, module_paths: Collection[str]) -> None:
    """Proves that every pattern of a plan means some module.

    Args:
        plan: the plan.
        module_paths: the modules that hold a weight matrix of their own. A parent of such modules is none itself: for
            all of its children the pattern is ``parent.*``.

    Raises:
        UsageError: a pattern matches none of them; the nearest path is named.
    """
    for rule in plan.policy:
        if not any(fnmatchcase(path, rule.pattern) for path in module_paths):
            inside = any(path.startswith(f"{rule.pattern}.") for path in module_paths)
            raise UsageError(
                f"the policy's pattern '{rule.pattern}' matches no module with weights; expected a module path such as "
                f"'{min(module_paths, default='classifier')}' (* matches any run of characters)",
                remedy=f"did you mean '{rule.pattern}.*'?" if inside else nearest(rule.pattern, module_paths),
            )


def stored_precision(plan: QuantizationPlan, module_path: str, precision: Precision) -> str:
    """Returns how the weights of a module are stored (``fp32``, ``fp16``, …) in a file of ``precision``."""
    planned = plan.precision_of(module_path)
    order: list[str] = [*PRECISIONS, "mixed"]
    return min(planned, precision, key=order.index)


def require_reduction(stored: Collection[str], precision: Precision) -> None:
    """Raises UsageError when no weight of a file is stored in less than FP32.

    Args:
        stored: precisions of the file's weights.
        precision: what was asked for.
    """
    if set(stored) <= {"fp32"}:
        raise UsageError(
            f"the plan leaves every weight in fp32, so there is nothing to store as {precision}",
            remedy="widen the policy or export fp32",
        )
