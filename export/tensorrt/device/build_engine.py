#!/usr/bin/env python3
"""Builds a TensorRT engine from the ONNX file beside this script, on the machine that will run it.

An engine fits one GPU and one TensorRT version only, so it is built on the device: ``python3 build_engine.py``. Needs
Python 3.6 and TensorRT 8.0 or later. The artifact's folder stays as it is, for its manifest lists every file in it; the
engine goes to the folder ``<artifact>-engine`` beside it:

- ``model.engine``, with one optimisation profile for each length in ``build.json``;
- ``engine.json``: the artifact it was built from (hashes of its manifest and ONNX file), versions, and the layers with
  their data types, as the engine itself reports them;
- ``timing.cache``, which makes the next build quick and repeatable.

Precision is what the ONNX file says. TensorRT 10 and later take it as it stands (strongly typed networks). Before,
the builder gets the flags of the reduced types, the layers whose type is fixed, and the order to obey: 8.6 reads those
types from the graph itself, while ``model.trt8.onnx``, for what cannot read that graph, comes with a list of them.
"""

import argparse
import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

try:
    from export.tensorrt.device.engine_check import (
        ENGINE,
        REPORT,
        BuildError,
        EnginePrecisionError,
        import_tensorrt,
        machine_facts,
        mismatches,
        require_precision,
    )
except ImportError:  # on the device the other file lies beside this one
    from engine_check import (  # type: ignore[import-not-found,no-redef]
        ENGINE,
        REPORT,
        BuildError,
        EnginePrecisionError,
        import_tensorrt,
        machine_facts,
        mismatches,
        require_precision,
    )

SETTINGS = "build.json"
MANIFEST = "manifest.json"
TIMING_CACHE = "timing.cache"
OLD_WORKSPACE_MB = 512
"""Before 8.4 a builder has no working memory at all unless it is given some."""
_LOG = logging.getLogger("build_engine")

__all__ = ["BuildError", "BuildOptions", "EnginePrecisionError", "Plan", "Profile", "build_plan", "make_engine"]


class Profile(NamedTuple):
    """Token counts of one optimisation profile."""

    min_tokens: int
    opt_tokens: int
    max_tokens: int


class BuildOptions(NamedTuple):
    """How one engine is built."""

    precision: str = "fp16"
    """``fp32``, ``fp16`` or ``int8``; what weakly typed builders are allowed beside FP32."""
    pinned: Optional[Dict[str, Sequence[str]]] = None
    """Layers to compute in ``fp32`` and ``fp16``, by name; None: the types are those of the graph."""
    timing_cache: Optional[bytes] = None
    """A cache from an earlier build on the same machine."""
    compute_capabilities: Sequence[str] = ()
    """Targets such as ``SM86``, where the builder can compile for a GPU that is not here."""
    workspace_mb: Optional[int] = None
    """Limit of the builder's working memory."""


class Plan(NamedTuple):
    """A serialised engine and what the builder said while making it."""

    data: bytes
    log: List[str]
    timing_cache: Optional[bytes]


def build_plan(trt: Any, model: Path, profiles: Sequence[Profile], options: BuildOptions) -> Plan:
    """Builds one engine; the same code for ``tensorrt`` (8.0 and later) and ``tensorrt_rtx``.

    Args:
        trt: the imported module.
        model: ONNX file with inputs of shape (1, tokens).
        profiles: one for each length.
        options: how.

    Raises:
        BuildError: the parser or the builder refused, with its own messages.
    """
    logger = _recording_logger(trt)
    try:
        builder = trt.Builder(logger)
    except (TypeError, RuntimeError) as error:  # what the binding makes of a null builder: no usable driver or GPU
        reasons = "; ".join(logger.errors) or str(error)
        raise BuildError("TensorRT {} does not start here: {}".format(trt.__version__, reasons)) from error
    if options.precision == "int8" and not getattr(builder, "platform_has_fast_int8", True):
        raise BuildError("this GPU does not multiply in INT8: export fp16 for it")
    typed = options.pinned is None and _has(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED")
    network = builder.create_network(_network_flags(trt, typed))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        errors = "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise BuildError("TensorRT {} does not read {}: {}".format(trt.__version__, model.name, errors))
    config = builder.create_builder_config()
    verbosity = trt.ProfilingVerbosity
    config.profiling_verbosity = verbosity.DETAILED if hasattr(verbosity, "DETAILED") else verbosity.VERBOSE
    if not typed and options.precision != "fp32":
        _allow_reduced_types(trt, config, options.precision)
        _pin_layers(trt, network, options.pinned)
    _limit_workspace(trt, config, options.workspace_mb)
    for target, name in enumerate(options.compute_capabilities):
        config.num_compute_capabilities = len(options.compute_capabilities)
        config.set_compute_capability(getattr(trt.ComputeCapability, name), target)
    for profile in profiles:
        config.add_optimization_profile(_profile(builder, network, profile))
    cache = None
    if not options.compute_capabilities:
        cache = config.create_timing_cache(options.timing_cache or b"")
        config.set_timing_cache(cache, False)
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        reasons = "; ".join(logger.errors) or "no reason given"
        raise BuildError("TensorRT {} built no engine: {}".format(trt.__version__, reasons))
    return Plan(bytes(serialised), list(logger.lines), None if cache is None else bytes(cache.serialize()))


def _has(trt: Any, enum: str, name: str) -> bool:
    return hasattr(getattr(trt, enum, None), name)


def _network_flags(trt: Any, typed: bool) -> int:
    flags = 0
    for name in ("EXPLICIT_BATCH",) + (("STRONGLY_TYPED",) if typed else ()):
        if _has(trt, "NetworkDefinitionCreationFlag", name):
            flags |= 1 << int(getattr(trt.NetworkDefinitionCreationFlag, name))
    return flags


def _allow_reduced_types(trt: Any, config: Any, precision: str) -> None:
    config.set_flag(trt.BuilderFlag.FP16)
    if precision == "int8":
        config.set_flag(trt.BuilderFlag.INT8)
    obey = "OBEY_PRECISION_CONSTRAINTS"  # STRICT_TYPES before 8.2
    config.set_flag(getattr(trt.BuilderFlag, obey if _has(trt, "BuilderFlag", obey) else "STRICT_TYPES"))


def _pin_layers(trt: Any, network: Any, pinned: Optional[Dict[str, Sequence[str]]]) -> None:
    """Weakly typed networks: fixes the types of layers, by name where names are given, else by the graph's own types.

    Raises:
        BuildError: no layer has one of the names: an FP32 island would silently become half.
    """
    skipped = {trt.LayerType.CONSTANT, trt.LayerType.SHAPE}
    by_name = dict.fromkeys((pinned or {}).get("fp32", ()), trt.DataType.FLOAT)
    by_name.update(dict.fromkeys((pinned or {}).get("fp16", ()), trt.DataType.HALF))
    count = 0
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        output = layer.get_output(0)
        if layer.type in skipped or output is None or output.is_shape_tensor:
            continue
        wanted = output.dtype if pinned is None else by_name.get(layer.name)
        if output.dtype in (trt.DataType.HALF, trt.DataType.FLOAT) and wanted in (
            trt.DataType.HALF,
            trt.DataType.FLOAT,
        ):
            layer.precision = wanted
            layer.set_output_type(0, wanted)
            count += 1
    if by_name and not count:
        raise BuildError("no layer of the network is named as in the ONNX file, so no FP32 island can be kept")
    _LOG.info("%d of %d layers have a fixed type", count, network.num_layers)


def _limit_workspace(trt: Any, config: Any, workspace_mb: Optional[int]) -> None:
    if not hasattr(config, "set_memory_pool_limit"):
        config.max_workspace_size = (workspace_mb or OLD_WORKSPACE_MB) << 20
    elif workspace_mb:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace_mb << 20)


def _profile(builder: Any, network: Any, tokens: Profile) -> Any:
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        profile.set_shape(network.get_input(index).name, *((1, count) for count in tokens))
    return profile


def _recording_logger(trt: Any) -> Any:
    class RecordingLogger(trt.ILogger):  # type: ignore[misc]
        """Keeps every line: the data types of the built layers are only told at the verbose level."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.lines = []  # type: List[str]
            self.errors = []  # type: List[str]

        def log(self, severity: Any, message: str) -> None:
            self.lines.append(message)
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)
                _LOG.error(message)

    return RecordingLogger()


def inspect_layers(trt: Any, plan: bytes) -> Optional[List[Any]]:
    """Returns the layers of an engine as its own inspector reports them; needs the GPU it was built for.

    Returns:
        None where this TensorRT has no inspector (before 8.2).
    """
    runtime = trt.Runtime(_recording_logger(trt))
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise BuildError("the engine was built but does not load on this GPU")
    if not hasattr(engine, "create_engine_inspector"):
        return None
    report = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    return list(json.loads(report).get("Layers", []))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Builds the engine of one folder; returns the exit code: 0 built, 2 not."""
    parser = argparse.ArgumentParser(description="Build the TensorRT engine of this folder on this device.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parent, help="folder with build.json")
    parser.add_argument("--output", type=Path, default=None, help="folder to write to (default: ../<folder>-engine)")
    parser.add_argument("--workspace-mb", type=int, default=None, help="limit of the builder's working memory")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        make_engine(options.folder, options.output or engine_folder(options.folder), options.workspace_mb)
    except (BuildError, OSError, ValueError) as error:
        _LOG.error("error: %s", error)
        return 2
    return 0


def engine_folder(folder: Path) -> Path:
    """Returns the folder beside an artifact that its engine goes to."""
    whole = folder.resolve()
    return whole.with_name(whole.name + "-engine")


def make_engine(folder: Path, output: Path, workspace_mb: Optional[int] = None) -> None:
    """Verifies the ONNX file, builds, inspects, and writes engine, report and timing cache.

    Args:
        folder: holds ``build.json`` and the ONNX file.
        output: made where absent. It may be ``folder`` itself only while that has no manifest yet.
        workspace_mb: limit of the builder's working memory; None: TensorRT's own.

    Raises:
        BuildError: a damaged ONNX file, a missing or old TensorRT, or an output folder that is a finished artifact.
        EnginePrecisionError: the engine does not compute in the precision asked for; nothing is written.
    """
    if (output / MANIFEST).exists():
        raise BuildError(
            "{} is a finished artifact, which an engine would damage: name another --output".format(output)
        )
    settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))  # type: Dict[str, Any]
    trt = import_tensorrt()
    graph = choose_graph(settings["graphs"], str(trt.__version__))
    for name, expected in graph["sha256"].items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != expected:
            raise BuildError(
                "{} has SHA-256 {}; expected {}: copy the folder again".format(name, found[:12], expected[:12])
            )
    here = machine_facts(trt)
    options = BuildOptions(
        precision=settings["precision"],
        pinned=graph["pinned"],
        timing_cache=_earlier_cache(output, here),
        workspace_mb=workspace_mb,
    )
    plan = build_plan(trt, folder / graph["model"], [Profile(*tokens) for tokens in settings["profiles"]], options)
    layers = inspect_layers(trt, plan.data)
    if layers is None:
        proof = "not read: this TensorRT has no engine inspector"
    else:
        proof = require_precision(layers, graph["products"])
    report = {
        "artifact": _identity(folder),
        "onnx": graph["model"],
        "onnx_sha256": graph["sha256"],
        "engine_sha256": hashlib.sha256(plan.data).hexdigest(),
        "built_with": here,
        "precision": settings["precision"],
        "strongly_typed": graph["pinned"] is None and _has(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED"),
        "profiles": settings["profiles"],
        "proof": proof,
        "layers": layers,
    }
    output.mkdir(parents=True, exist_ok=True)
    if plan.timing_cache is not None:
        _write(output / TIMING_CACHE, plan.timing_cache)
    _write(output / ENGINE, plan.data)
    _write(output / REPORT, (json.dumps(report, indent=2) + "\n").encode())
    _LOG.info("built %s: %.1f MB; %s", output / ENGINE, len(plan.data) / 1e6, proof)


def choose_graph(graphs: Sequence[Dict[str, Any]], version: str) -> Dict[str, Any]:
    """Returns the graph that a version of TensorRT builds: the first whose own oldest version is not later.

    Raises:
        BuildError: all of them are for later versions.
    """
    have = _version(version)
    for graph in graphs:
        if tuple(graph["oldest"]) <= have:
            return graph
    oldest = ".".join(map(str, graphs[-1]["oldest"]))
    raise BuildError(
        "TensorRT {} is too old for {}; expected {} or later: convert again with the --device it is for".format(
            version, graphs[-1]["model"], oldest
        )
    )


def _earlier_cache(output: Path, here: Dict[str, Optional[str]]) -> Optional[bytes]:
    """Returns the timing cache of an earlier build; None where that was on another machine or version."""
    try:
        report = json.loads((output / REPORT).read_text(encoding="utf-8"))
        return None if mismatches(report["built_with"], here) else (output / TIMING_CACHE).read_bytes()
    except (OSError, ValueError, KeyError):
        return None


def _identity(folder: Path) -> Optional[Dict[str, str]]:
    """Name and manifest hash of the artifact in ``folder``; None while it is still being made."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    return {"name": folder.resolve().name, "manifest_sha256": hashlib.sha256(manifest.read_bytes()).hexdigest()}


def _version(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _write(path: Path, data: bytes) -> None:
    """Writes through a temporary file, so that an interrupted build leaves no half engine."""
    temporary = path.with_name("." + path.name + ".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
