#!/usr/bin/env python3
"""Builds a TensorRT engine from the ONNX file beside this script, on the machine that will run it.

An engine fits one GPU and one TensorRT version only, so it is built on the device: ``python3 build_engine.py``. Needs
Python 3.8 and TensorRT 8.6 or later: before 8.6 there is no LayerNormalization. The artifact's folder stays as it is,
for its manifest lists every file in it; the engine goes to the folder ``<artifact>-engine`` beside it:

- ``model.engine``, with one optimisation profile for each length in ``build.json``;
- ``engine.json``: the artifact it was built from (hashes of its manifest and ONNX file), versions, and the layers with
  their data types, as the engine itself reports them;
- ``timing.cache``, which makes the next build quick and repeatable.

Precision is what the ONNX file says. TensorRT 10 and later take it as it stands (strongly typed networks); 8.6 gets the
FP16 flag, the type of every layer as the graph states it, and the order to obey.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

SETTINGS = "build.json"
ENGINE = "model.engine"
REPORT = "engine.json"
MANIFEST = "manifest.json"
TIMING_CACHE = "timing.cache"
OLDEST = (8, 6)
_LOG = logging.getLogger("build_engine")


class BuildError(Exception):
    """The engine cannot be built here; the message says why and what to do."""


class EnginePrecisionError(BuildError):
    """An engine was built, and does not compute in the precision of its ONNX file."""


class Profile(NamedTuple):
    """Token counts of one optimisation profile."""

    min_tokens: int
    opt_tokens: int
    max_tokens: int


class Plan(NamedTuple):
    """A serialised engine and what the builder said while making it."""

    data: bytes
    log: list[str]
    timing_cache: bytes | None


def build_plan(
    trt: Any,
    model: Path,
    profiles: Sequence[Profile],
    *,
    half: bool,
    timing_cache: bytes | None = None,
    compute_capabilities: Sequence[str] = (),
) -> Plan:
    """Builds one engine; the same code for ``tensorrt`` (8.6 and later) and ``tensorrt_rtx``.

    Args:
        trt: the imported module.
        model: strongly typed ONNX file with inputs of shape (1, tokens).
        profiles: one for each length.
        half: the file holds FP16; older versions have to be told.
        timing_cache: a cache from an earlier build of the same version.
        compute_capabilities: targets such as ``SM86``, where the builder can compile for a GPU that is not here.

    Raises:
        BuildError: the parser or the builder refused, with its own messages.
    """
    logger = _recording_logger(trt)
    try:
        builder = trt.Builder(logger)
    except (TypeError, RuntimeError) as error:  # what the binding makes of a null builder: no usable driver or GPU
        reasons = "; ".join(logger.errors) or str(error)
        raise BuildError(f"TensorRT {trt.__version__} does not start here: {reasons}") from error
    flags = _network_flags(trt)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        errors = "; ".join(str(parser.get_error(i)) for i in range(parser.num_errors))
        raise BuildError(f"TensorRT {trt.__version__} does not read {model.name}: {errors}")
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if half and not _has(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED"):
        _obey_graph_types(trt, network, config)
    for target, name in enumerate(compute_capabilities):
        config.num_compute_capabilities = len(compute_capabilities)
        config.set_compute_capability(getattr(trt.ComputeCapability, name), target)
    for profile in profiles:
        config.add_optimization_profile(_profile(builder, network, profile))
    cache = None
    if not compute_capabilities:
        cache = config.create_timing_cache(timing_cache or b"")
        config.set_timing_cache(cache, False)
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        raise BuildError(f"TensorRT {trt.__version__} built no engine: {'; '.join(logger.errors) or 'no reason given'}")
    return Plan(bytes(serialised), list(logger.lines), None if cache is None else bytes(cache.serialize()))


def _has(trt: Any, enum: str, name: str) -> bool:
    return hasattr(getattr(trt, enum, None), name)


def _network_flags(trt: Any) -> int:
    flags = 0
    for name in ("EXPLICIT_BATCH", "STRONGLY_TYPED"):
        if _has(trt, "NetworkDefinitionCreationFlag", name):
            flags |= 1 << int(getattr(trt.NetworkDefinitionCreationFlag, name))
    return flags


def _obey_graph_types(trt: Any, network: Any, config: Any) -> None:
    """Weakly typed networks (8.6): pins every float layer to the type that the graph gave its output."""
    config.set_flag(trt.BuilderFlag.FP16)
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    skipped = {trt.LayerType.CONSTANT, trt.LayerType.SHAPE}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        output = layer.get_output(0)
        if layer.type in skipped or output is None or output.is_shape_tensor:
            continue
        if output.dtype in (trt.DataType.HALF, trt.DataType.FLOAT):
            layer.precision = output.dtype
            layer.set_output_type(0, output.dtype)


def _profile(builder: Any, network: Any, tokens: Profile) -> Any:
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        profile.set_shape(network.get_input(index).name, *((1, count) for count in tokens))
    return profile


def _recording_logger(trt: Any) -> Any:
    class RecordingLogger(trt.ILogger):  # type: ignore[misc]
        """Keeps every line: the data types of the built layers are only told at the verbose level."""

        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            self.lines.append(message)
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)
                _LOG.error(message)

    return RecordingLogger()


def inspect_layers(trt: Any, plan: bytes) -> list[Any]:
    """Returns the layers of an engine as its own inspector reports them; needs the GPU it was built for."""
    runtime = trt.Runtime(_recording_logger(trt))
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise BuildError("the engine was built but does not load on this GPU")
    report = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    layers = json.loads(report).get("Layers", [])
    return list(layers)


def mentions_half(layers: Sequence[Any]) -> bool:
    """Returns whether any reported layer reads or writes half-precision data."""
    return any(word in json.dumps(layer) for layer in layers for word in ("Half", "FP16", "fp16"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the engine of one folder; returns the exit code: 0 built, 2 not."""
    parser = argparse.ArgumentParser(description="Build the TensorRT engine of this folder on this device.")
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parent, help="folder with build.json")
    parser.add_argument("--output", type=Path, default=None, help="folder to write to (default: ../<folder>-engine)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        build_folder(options.folder, options.output or engine_folder(options.folder))
    except (BuildError, OSError, ValueError) as error:
        _LOG.error("error: %s", error)
        return 2
    return 0


def engine_folder(folder: Path) -> Path:
    """Returns the folder beside an artifact that its engine goes to."""
    whole = folder.resolve()
    return whole.with_name(f"{whole.name}-engine")


def build_folder(folder: Path, output: Path) -> None:
    """Verifies the ONNX file, builds, inspects, and writes engine, report and timing cache.

    Args:
        folder: holds ``build.json`` and the ONNX file.
        output: made where absent. It may be ``folder`` itself only while that has no manifest yet.

    Raises:
        BuildError: a damaged ONNX file, a missing or old TensorRT, or an output folder that is a finished artifact.
        EnginePrecisionError: the engine does not compute in the precision asked for; nothing is written.
    """
    if (output / MANIFEST).exists():
        raise BuildError(f"{output} is a finished artifact, which an engine would damage: name another --output")
    settings: dict[str, Any] = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    for name, expected in settings["sha256"].items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != expected:
            raise BuildError(f"{name} has SHA-256 {found[:12]}; expected {expected[:12]}: copy the folder again")
    trt = _import_tensorrt()
    half = settings["precision"] == "fp16"
    cache = output / TIMING_CACHE
    plan = build_plan(
        trt,
        folder / settings["model"],
        [Profile(*tokens) for tokens in settings["profiles"]],
        half=half,
        timing_cache=cache.read_bytes() if cache.is_file() else None,
    )
    layers = inspect_layers(trt, plan.data)
    if half and not mentions_half(layers):
        raise EnginePrecisionError(
            "the engine holds no half-precision layer although the ONNX file is FP16; nothing was written"
        )
    report = {
        "tensorrt": trt.__version__,
        "python": platform.python_version(),
        "machine": _machine(),
        "artifact": _identity(folder),
        "onnx_sha256": settings["sha256"],
        "engine_sha256": hashlib.sha256(plan.data).hexdigest(),
        "precision": settings["precision"],
        "strongly_typed": _has(trt, "NetworkDefinitionCreationFlag", "STRONGLY_TYPED"),
        "profiles": settings["profiles"],
        "layers": layers,
    }
    output.mkdir(parents=True, exist_ok=True)
    if plan.timing_cache is not None:
        _write(cache, plan.timing_cache)
    _write(output / ENGINE, plan.data)
    _write(output / REPORT, (json.dumps(report, indent=2) + "\n").encode())
    _LOG.info("built %s: %.1f MB, %d layers", output / ENGINE, len(plan.data) / 1e6, len(layers))


def _identity(folder: Path) -> dict[str, str] | None:
    """Name and manifest hash of the artifact in ``folder``; None while it is still being made."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return None
    return {"name": folder.resolve().name, "manifest_sha256": hashlib.sha256(manifest.read_bytes()).hexdigest()}


def _import_tensorrt() -> Any:
    try:
        import tensorrt as trt
    except ModuleNotFoundError as error:
        raise BuildError("the Python package 'tensorrt' is not here; on a Jetson it comes with JetPack") from error
    except (ImportError, OSError, RuntimeError) as error:  # a package whose native libraries are missing or too new
        raise BuildError(f"the Python package 'tensorrt' does not load: {error}") from error
    if _version(trt.__version__) < OLDEST:
        raise BuildError(f"TensorRT {trt.__version__} has no LayerNormalization; expected 8.6 or later")
    return trt


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _machine() -> str:
    model = Path("/proc/device-tree/model")
    if model.is_file():
        return model.read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    return f"{platform.system()} {platform.machine()}"


def _write(path: Path, data: bytes) -> None:
    """Writes through a temporary file, so that an interrupted build leaves no half engine."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
