"""Engines built on this machine: a TensorRT-RTX plan anywhere, a TensorRT engine where its GPU is here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compressor.core.artifact import Precision
from compressor.core.errors import StageError
from compressor.core.folders import write_json
from export.onnx.inspection import gemm_nodes
from export.tensorrt.device.build_engine import (
    BuildError,
    BuildOptions,
    EnginePrecisionError,
    Profile,
    build_plan,
    make_engine,
)
from export.tensorrt.layers import BuiltLayer, built_layers, nodes_built_in
from export.tensorrt.profiles import whole_range

RTX_PLAN = "model.rtx.plan"
RTX_LAYERS = "rtx_layers.json"
LAYER_TYPES = {"fp16": "Half", "int8": "Int8"}
"""What a layer listing calls the types that a graph states."""
MIN_SHARE = {"fp16": 1.0, "int8": 0.9}
"""Least share of the products of a type that must be found in layers of that type, else the engine is refused."""
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
        StageError: the graph does not build, or a GEMM layer is not in the type that the graph states.
    """
    if find_spec("tensorrt_rtx") is None:
        return {"rtx_plan": "not built: the package 'tensorrt-rtx-cu12' is not installed (extra 'rtx')"}
    if precision == "fp32":
        return {"rtx_plan": "not built: TensorRT-RTX has no FP32 GEMM on the oldest GPU it targets (SM75)"}
    import tensorrt_rtx as trt

    targets = sorted(set(trt.ComputeCapability.__members__) - _NOT_TARGETS)
    profile = whole_range(profiles)
    try:
        plan = build_plan(trt, model, [profile], BuildOptions(compute_capabilities=targets))
    except BuildError as error:
        raise StageError(str(error), remedy="report this model, or leave the extra 'rtx' out") from error
    layers = built_layers(plan.log)
    proof = check_layers(layers, model)
    (model.parent / RTX_PLAN).write_bytes(plan.data)
    facts: dict[str, object] = {
        "tensorrt_rtx": str(trt.__version__),
        "targets": targets,
        "profile": list(profile),
        "gemm_types": _count(layers),
        "proof": proof,
        "size_bytes": len(plan.data),
    }
    write_json(model.parent / RTX_LAYERS, {**facts, "layers": [layer.model_dump(mode="json") for layer in layers]})
    return {"rtx_plan": RTX_PLAN, **facts}


def check_layers(layers: Sequence[BuiltLayer], model: Path) -> str:
    """Proves that an engine multiplies in the type that its graph states, product by product.

    Every MatMul and Gemm that the graph states in half precision must be named by a layer that multiplies in Half; of
    those between Q/DQ at least MIN_SHARE must be named by one that multiplies in Int8. No layer that names such a
    product may multiply in another type. Products that the graph states in FP32 (by policy) are free.

    Args:
        layers: of the built engine.
        model: the ONNX file that it was built from.

    Returns:
        What was proven, as a sentence for the manifest; weaker where the layers do not name their ONNX nodes.

    Raises:
        StageError: the builder listed no GEMM layer, or a product is not computed as the graph states.
    """
    if not any(layer.is_gemm for layer in layers):
        raise StageError(
            "the engine's layers cannot be read from the build log", remedy="report the version of TensorRT"
        )
    stated = gemm_nodes(model)
    reduced = {kind for kind in stated.values() if kind in LAYER_TYPES}
    wrong = [layer for layer in layers if layer.is_gemm and not _as_stated(layer, stated)]
    if wrong and reduced:
        expected = " or ".join(LAYER_TYPES[kind] for kind in sorted(reduced))
        raise StageError(
            f"{len(wrong)} GEMM layers of the engine are not {expected} as the graph states, first '{wrong[0].name}' "
            f"({', '.join(sorted(wrong[0].operand_types))}); expected none",
            remedy="report the version of TensorRT",
        )
    named = any(layer.onnx_nodes for layer in layers)
    proven = [
        _prove(layers, kind, [name for name, found in stated.items() if found == kind], named=named)
        for kind in sorted(reduced, reverse=True)
    ]
    full = sum(kind not in LAYER_TYPES for kind in stated.values())
    return "; ".join([*proven, f"{full} products are FP32 by policy"])


def _as_stated(layer: BuiltLayer, stated: Mapping[str, str]) -> bool:
    """Only a layer that names products which the graph states in FP32, and no other, may be Float."""
    kinds = {stated[name] for name in layer.onnx_nodes if name in stated}
    if kinds and not kinds & LAYER_TYPES.keys():
        return True
    allowed = (kinds or set(stated.values())) & LAYER_TYPES.keys()
    return any(layer.multiplies_in(LAYER_TYPES[kind]) for kind in allowed)


def _prove(layers: Sequence[BuiltLayer], kind: str, names: Sequence[str], *, named: bool) -> str:
    dtype = LAYER_TYPES[kind]
    if not named:
        return f"every GEMM layer that was listed is {dtype}; the listing names no ONNX nodes, so none was looked up"
    missing = sorted(set(names) - nodes_built_in(layers, dtype))
    share = 1 - len(missing) / len(names)
    if share < MIN_SHARE[kind]:
        raise StageError(
            f"{len(missing)} of {len(names)} {kind} products of the graph are in no {dtype} layer of the engine "
            f"(at least {MIN_SHARE[kind]:.0%} must be): {', '.join(missing)}",
            remedy="report the version of TensorRT",
        )
    return f"{len(names) - len(missing)} of {len(names)} {kind} products of the graph are in {dtype} layers"


def build_engine_here(folder: Path) -> dict[str, object]:
    """Builds ``model.engine`` into ``folder`` with this machine's own TensorRT, where that and an NVIDIA driver work.

    It runs before the manifest is written, so the engine is one of the files that the manifest lists; once there is a
    manifest, an engine goes to a folder of its own (:func:`export.tensorrt.device.build_engine.engine_folder`).

    Returns:
        Facts for the manifest, ``{"engine": "not built: …"}`` where something is absent, too old or broken: the
        artifact is the ONNX file, and what this machine cannot build its device still can.

    Raises:
        StageError: an engine was built and does not compute in the precision asked for.
    """
    if find_spec("tensorrt") is None:
        return {"engine": "not built: an engine is built on its device, with build_engine.py"}
    if not _DRIVER.is_file():
        return {"engine": "not built: TensorRT is installed, but there is no NVIDIA driver here"}
    try:
        make_engine(folder, folder)
    except EnginePrecisionError as error:
        raise StageError(str(error), remedy="see TensorRT's messages above") from error
    except (BuildError, RuntimeError, AttributeError) as error:
        _LOG.warning("no engine is built on this machine: %s", error)
        return {"engine": f"not built: {error}"}
    _LOG.info("built an engine for this machine's GPU in %s", folder)
    return {"engine": "model.engine"}


def _count(layers: Sequence[BuiltLayer]) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for layer in layers:
        if layer.is_gemm:
            kind = "+".join(sorted(layer.operand_types))
            counts[kind] = counts.get(kind, 0) + 1
    return counts
