"""Graph passes: from a traced graph to one clean graph in which every weight stands once."""

from __future__ import annotations

import onnx_ir as ir
import onnxscript.optimizer as optimizer
from onnx_ir.passes import common

from compressor.core.errors import StageError
from export.onnx.passes.finite_masks import FiniteMasksPass
from export.onnx.passes.gemm_to_matmul import GemmToMatMulPass
from export.onnx.passes.module_paths import ModulePathsPass
from export.onnx.passes.stored_transposes import StoredTransposesPass
from export.onnx.passes.transposed_weights import LARGE_BYTES, TransposedWeightsPass
from export.onnx.quiet import errors_only

_FOLD_INPUT_BYTES = 64 * 1024
"""Constants above this are never folded: folding a weight through a Transpose would store it a second time."""


def clean(model: ir.Model) -> None:
    """Folds constants, removes aliases and duplicates, and makes masks finite, in place.

    Raises:
        StageError: an operator outside the standard set remains.
    """
    common.IdentityEliminationPass()(model)
    StoredTransposesPass()(model)
    with errors_only("onnxscript"):
        optimizer.fold_constants_ir(model, input_size_limit=_FOLD_INPUT_BYTES, onnx_shape_inference=True)
    ir.passes.Sequential(
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.IdentityEliminationPass(),
        FiniteMasksPass(),
        deduplicate(),
        common.RemoveUnusedOpsetsPass(),
        common.TopologicalSortPass(),
    )(model)
    _standard_only(model)


def deduplicate() -> ir.passes.Sequential:
    """Returns the passes that leave every weight and every computation once; run after each rewrite."""
    return ir.passes.Sequential(
        common.DeduplicateInitializersPass(size_limit=LARGE_BYTES),
        TransposedWeightsPass(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedNodesPass(),
    )


def _standard_only(model: ir.Model) -> None:
    foreign = sorted({f"{node.domain}.{node.op_type}" for node in model.graph if node.domain not in ("", "ai.onnx")})
    if foreign:
        raise StageError(f"the graph uses operators outside ai.onnx: {', '.join(foreign)}", remedy="report this model")


__all__ = [
    "FiniteMasksPass",
    "GemmToMatMulPass",
    "ModulePathsPass",
    "StoredTransposesPass",
    "TransposedWeightsPass",
    "clean",
    "deduplicate",
]
