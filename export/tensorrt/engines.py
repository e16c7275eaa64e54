"""Engines built on this machine: a TensorRT-RTX plan anywhere, a TensorRT engine where its GPU is here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compressor.core.artifact import Precision
from compressor.core.errors import StageError
from compressor.core.folders import write_json
from export.onnx.inspection import statistics
from export.tensorrt.device.build_engine import BuildError, Profile, build_folder, build_plan
from export.tensorrt.layers import BuiltLayer, built_layers, gemms_not_in
from export.tensorrt.profiles import whole_range

RTX_PLAN = "model.rtx.plan"
RTX_LAYERS = "rtx_layers.json"
_NOT_TARGETS = frozenset({"NONE", "CURRENT"})
_DRIVER = Path("/proc/driver/nvidia/version")
_LOG = logging.getLogger(__name__)


def build_rtx_plan(model: Path, profiles: Sequence[Profile], precision: Precision) -> dict[str, object]:
    """Compiles ``model.rtx.plan`` beside an ONNX file with TensorRT-RTX, for every GPU generation that it knows.

    It needs neither a GPU nor a driver. Such a plan runs under TensorRT-RTX only, not on a Jetson; there it is a proof
    that the graph converts and that its GEMMs are built in the type the graph states. One profile covers all lengths:
    TensorRT-RTX specialises its kernels for the shape at run time, and every further profile would add its own copy of
    the generated code to the plan.

    Returns:
        Facts for the manifest; ``{"rtx_plan": "not built: …"}`` where the package is absent.

    Raises:
        StageError: the graph does not build, or FP16 was asked for and a GEMM layer is not Half.
    """
    if find_spec("tensorrt_rtx") is None:
        return {"rtx_plan": "not built: the package 'tensorrt-rtx-cu12' is not installed (extra 'rtx')"}
    if precision != "fp16":
        return {"rtx_plan": "not built: TensorRT-RTX has no FP32 GEMM on the oldest GPU it targets (SM75)"}
    import tensorrt_rtx as trt

    targets = sorted(set(trt.ComputeCapability.__members__) - _NOT_TARGETS)
    profile = whole_range(profiles)
    try:
        plan = build_plan(trt, model, [profile], half=True, compute_capabilities=targets)
    except BuildError as error:
        raise StageError(str(error), remedy="report this model, or leave the extra 'rtx' out") from error
    layers = built_layers(plan.log)
    check_layers(layers, model)
    (model.parent / RTX_PLAN).write_bytes(plan.data)
    facts: dict[str, object] = {
        "tensorrt_rtx": str(trt.__version__),
        "targets": targets,
        "profile": list(profile),
        "gemm_types": _count(layers),
        "size_bytes": len(plan.data),
    }
    write_json(model.parent / RTX_LAYERS, {**facts, "layers": [layer.model_dump(mode="json") for layer in layers]})
    return {"rtx_plan": RTX_PLAN, **facts}


def check_layers(layers: Sequence[BuiltLayer], model: Path) -> None:
    """Proves that an FP16 engine multiplies in half precision.

    Raises:
        StageError: the builder listed no GEMM layer; or the graph's GEMMs are all FP16 and one of the engine's is not.
    """
    if not any(layer.is_gemm for layer in layers):
        raise StageError(
            "the engine's layers cannot be read from the build log", remedy="report the version of TensorRT"
        )
    if statistics(model, "tensorrt").gemm_types.get("fp32", 0):
        return
    wrong = gemms_not_in(layers, "Half")
    if wrong:
        raise StageError(
            f"{len(wrong)} GEMM layers of the FP16 engine are not Half, first '{wrong[0].name}' "
            f"({', '.join(sorted(wrong[0].operand_types))}); expected none",
            remedy="report the version of TensorRT",
        )


def build_engine_here(folder: Path) -> dict[str, object]:
    """Builds ``model.engine`` with this machine's own TensorRT, where the package and an NVIDIA driver are present.

    Returns:
        Facts for the manifest, ``{"engine": "not built: …"}`` where something is absent.

    Raises:
        StageError: both are present and the build fails.
    """
    if find_spec("tensorrt") is None:
        return {"engine": "not built: an engine is built on its device, with build_engine.py"}
    if not _DRIVER.is_file():
        return {"engine": "not built: TensorRT is installed, but there is no NVIDIA driver here"}
    try:
        build_folder(folder, folder)
    except BuildError as error:
        raise StageError(str(error), remedy="see TensorRT's messages above") from error
    _LOG.info("built an engine for this machine's GPU in %s", folder)
    return {"engine": "model.engine"}


def _count(layers: Sequence[BuiltLayer]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for layer in layers:
        if layer.is_gemm:
            kind = "+".join(sorted(layer.operand_types))
            counts[kind] = counts.get(kind, 0) + 1
    return counts
