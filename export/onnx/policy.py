"""From a quantisation plan, which speaks of module paths, to the nodes of a traced graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import onnx_ir as ir

from compressor.core.errors import UsageError, nearest
from compressor.quantize.plan import QuantizationPlan
from export.onnx.tracing import WRAPPED

WEIGHT_GEMMS = frozenset({"MatMul", "Gemm", "Conv"})


def module_path(node: ir.Node) -> str:
    """Returns the dotted path of the module that a node came from, e.g. ``bert.encoder.layer.0.output.dense``.

    The tracer names a node ``/model/bert/encoder/layer.0/output/dense/MatMul``; the first part is the wrapper's.
    """
    parts = str(node.name).strip("/").split("/")[:-1]
    return ".".join(parts[1:] if parts[:1] == [WRAPPED] else parts)


def weight_nodes(model: ir.Model, *, embeddings: bool) -> Iterator[ir.Node]:
    """Yields the nodes that apply a stored float weight: MatMul, Gemm and Conv, and lookups in embedding tables."""
    for node in model.graph:
        if (node.op_type in WEIGHT_GEMMS and any(_is_weight(value) for value in node.inputs[:2])) or (
            embeddings and node.op_type == "Gather" and _is_weight(node.inputs[0])
        ):
            yield node


def check_patterns(plan: QuantizationPlan, model: ir.Model) -> None:
    """Proves that every pattern of a plan means some module of the graph.

    Raises:
        UsageError: a pattern matches no module that holds weights; the nearest path is named.
    """
    paths = sorted({module_path(node) for node in weight_nodes(model, embeddings=True)})
    for rule in plan.policy:
        if not any(fnmatchcase(path, rule.pattern) for path in _with_parents(paths)):
            raise UsageError(
                f"the policy's pattern '{rule.pattern}' matches no module with weights; expected a module path "
                f"such as '{paths[0] if paths else 'classifier'}' (* matches any run of characters)",
                remedy=nearest(rule.pattern, paths),
            )


def keeps_fp32(plan: QuantizationPlan, path: str) -> bool:
    """Returns whether a rule of the plan explicitly leaves the module at ``path`` in FP32."""
    return any(fnmatchcase(path, rule.pattern) for rule in plan.policy) and plan.precision_of(path) == "fp32"


def _is_weight(value: ir.Value | None) -> bool:
    tensor = None if value is None else value.const_value
    return tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape) >= 2


def _with_parents(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        parts = path.split(".")
        found.update(".".join(parts[: end + 1]) for end in range(len(parts)))
    return found
