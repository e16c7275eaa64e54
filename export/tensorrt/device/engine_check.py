#!/usr/bin/env python3
"""What an engine is made for, and what it is made of; run on the device: ``python3 engine_check.py ../NAME-engine``.

An engine fits the GPU and the TensorRT version it was built with and no other: a wrong one crashes, is refused deep in
the runtime, or runs slowly. So the machine is compared with ``engine.json`` before TensorRT is asked to load anything.

Needs Python 3.6 or later, which JetPack 4 brings.
"""

import argparse
import ctypes
import hashlib
import json
import logging
import platform
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set  # noqa: F401

ENGINE = "model.engine"
REPORT = "engine.json"
BOUND_TO = ("tensorrt", "gpu", "compute_capability")
"""Facts in which an engine and the machine it runs on must agree."""
MIN_SHARE = 0.9
"""Least share of the readable matrix products that must compute in the type stated for them."""
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR, CUDA driver API
_GEMM_KINDS = frozenset(("gemm", "matmul", "matrixmultiply", "fmha", "mha"))
_GEMM_TACTIC = re.compile(r"gemm|imma|hmma|_mha", re.IGNORECASE)
_OPAQUE = re.compile(r"ForeignNode|^Myelin$")
_LOG = logging.getLogger("engine_check")


class BuildError(Exception):
    """Something that cannot be done on this machine; the message says why and what to do."""


class EnginePrecisionError(BuildError):
    """An engine was built, and does not compute in the precision of its ONNX file."""


class PrecisionProof(NamedTuple):
    """What the layers of an engine say about the matrix products of its graph."""

    as_stated: int
    """Products found in a layer of the stated type."""
    otherwise: List[str]
    """Names of products found in layers of another type only."""
    unreadable: int
    """Products that no readable layer names."""

    @property
    def share(self) -> Optional[float]:
        """Share of the readable products that are as stated; None where none is readable."""
        readable = self.as_stated + len(self.otherwise)
        return self.as_stated / readable if readable else None


def machine_facts(trt: Any, cuda: Any = None) -> Dict[str, Optional[str]]:
    """Returns what an engine is bound to on this machine, and what helps to explain one.

    Args:
        trt: the imported TensorRT module.
        cuda: the CUDA driver library; default: this machine's, where there is one.
    """
    facts = {
        "tensorrt": str(trt.__version__),
        "gpu": None,
        "compute_capability": None,
        "cuda": None,
        "driver": _driver(),
        "machine": _machine(),
        "python": platform.python_version(),
    }  # type: Dict[str, Optional[str]]
    facts.update(_gpu_facts(cuda if cuda is not None else _cuda_library()))
    return facts


def _cuda_library() -> Any:
    for name in ("libcuda.so.1", "libcuda.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _gpu_facts(cuda: Any) -> Dict[str, str]:
    """Asks the driver for its first GPU; nothing where there is none."""
    device, major, minor, version = (ctypes.c_int() for _ in range(4))
    name = ctypes.create_string_buffer(256)
    if cuda is None or cuda.cuInit(0) != 0 or cuda.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return {}
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return {
        "gpu": name.value.decode("utf-8", "replace"),
        "compute_capability": "%d.%d" % (major.value, minor.value),
        "cuda": "%d.%d" % (version.value // 1000, version.value % 1000 // 10),
    }


def _driver() -> Optional[str]:
    """Version of the NVIDIA kernel driver; on a Jetson the release of its board support package."""
    for path, pattern in (
        ("/proc/driver/nvidia/version", r"(?:Kernel Module|x86_64|aarch64)\s+([\d.]+)"),
        ("/etc/nv_tegra_release", r"# (R\d+ \(release\), REVISION: [\d.]+)"),
    ):
        if Path(path).is_file():
            found = re.search(pattern, Path(path).read_text(encoding="utf-8", errors="replace"))
            if found:
                return found.group(1)
    return None


def _machine() -> str:
    model = Path("/proc/device-tree/model")
    if model.is_file():
        return model.read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    return platform.system() + " " + platform.machine()


def mismatches(made_for: Dict[str, Any], here: Dict[str, Optional[str]]) -> List[str]:
    """Returns in what an engine's machine and this one differ, in words; empty where the engine may be loaded."""
    return [
        "{} {} (here: {})".format(fact.replace("_", " "), made_for.get(fact), here.get(fact))
        for fact in BOUND_TO
        if made_for.get(fact) != here.get(fact)
    ]


def check_engine(folder: Path, here: Dict[str, Optional[str]]) -> Dict[str, Any]:
    """Returns the report of an engine folder whose engine is whole and was made for a machine like this.

    Raises:
        BuildError: no engine, a damaged one, or one made for another GPU or TensorRT; nothing was loaded.
    """
    if not (folder / ENGINE).is_file() or not (folder / REPORT).is_file():
        raise BuildError("{} holds no {} with its {}: build it with build_engine.py".format(folder, ENGINE, REPORT))
    report = json.loads((folder / REPORT).read_text(encoding="utf-8"))  # type: Dict[str, Any]
    found = hashlib.sha256((folder / ENGINE).read_bytes()).hexdigest()
    if found != report.get("engine_sha256"):
        raise BuildError(
            "{} has SHA-256 {}; expected {}: build it again".format(
                folder / ENGINE, found[:12], str(report.get("engine_sha256"))[:12]
            )
        )
    different = mismatches(report.get("built_with", {}), here)
    if different:
        raise BuildError(
            "{} was made for {}; it was not loaded: build it again on this machine".format(
                folder / ENGINE, ", ".join(different)
            )
        )
    return report


def load_engine(folder: Path, trt: Any, logger: Any, cuda: Any = None) -> Any:
    """Loads an engine on this machine, after :func:`check_engine`.

    Raises:
        BuildError: see there; or TensorRT itself refuses the engine.
    """
    check_engine(folder, machine_facts(trt, cuda))
    runtime = trt.Runtime(logger)
    engine = runtime.deserialize_cuda_engine((folder / ENGINE).read_bytes())
    if engine is None:
        raise BuildError("TensorRT refuses {} although it was made for this machine".format(folder / ENGINE))
    return engine


def precision_proof(layers: Sequence[Any], products: Dict[str, Sequence[str]]) -> PrecisionProof:
    """Looks up every matrix product of a graph in the layers of its engine.

    Args:
        layers: as TensorRT's engine inspector lists them in JSON, built with detailed profiling verbosity.
        products: names of the products by the type that the graph states (``fp16``, ``int8``; others are free).
    """
    built = {}  # type: Dict[str, Set[str]]
    for layer in layers:
        if isinstance(layer, dict) and _multiplies(layer):
            for name in _nodes(layer):
                built.setdefault(name, set()).add(_operand_type(layer))
    right, otherwise, unreadable = 0, [], 0
    for kind in ("fp16", "int8"):
        for name in products.get(kind, ()):
            if name not in built:
                unreadable += 1
            elif kind in built[name]:
                right += 1
            else:
                otherwise.append(name)
    return PrecisionProof(right, otherwise, unreadable)


def require_precision(layers: Sequence[Any], products: Dict[str, Sequence[str]]) -> str:
    """Returns what the layers prove, as a sentence.

    Layers of TensorRT 8 may hide a whole transformer in one opaque node; then only the types at its borders are known,
    and one of them has to be the reduced type.

    Raises:
        EnginePrecisionError: too few products are in the type their graph states.
    """
    proof = precision_proof(layers, products)
    wanted = [kind for kind in ("fp16", "int8") if products.get(kind)]
    if not wanted:
        return "an FP32 graph: every type is as stated"
    opaque = any(isinstance(layer, dict) and _is_opaque(layer) for layer in layers)
    wrong = proof.otherwise if opaque or proof.share is None else proof.otherwise + ["?"] * proof.unreadable
    total = proof.as_stated + len(wrong)
    if total and proof.as_stated < MIN_SHARE * total:
        raise EnginePrecisionError(
            "{} of {} matrix products are in layers of the type their graph states; expected at least {:.0%}; nothing "
            "was written".format(proof.as_stated, total, MIN_SHARE)
        )
    if total:
        hidden = ", {} more in opaque layers".format(proof.unreadable) if opaque and proof.unreadable else ""
        return "{} of {} matrix products are in layers of the stated type{}".format(proof.as_stated, total, hidden)
    if not any(_type_of(text) in wanted for text in _strings(layers)):
        raise EnginePrecisionError(
            "no layer of the engine reads or writes {}, which the ONNX file states; nothing was written".format(
                " or ".join(wanted)
            )
        )
    return "the layers name no matrix product; the reduced type is seen at the borders of some"


def _multiplies(layer: Dict[str, Any]) -> bool:
    kind = str(layer.get("LayerType", "")).lower()
    return kind in _GEMM_KINDS or "gemm" in kind or bool(_GEMM_TACTIC.search(str(layer.get("TacticName", ""))))


def _is_opaque(layer: Dict[str, Any]) -> bool:
    return bool(_OPAQUE.search(str(layer.get("LayerType", ""))) or _OPAQUE.search(str(layer.get("Name", ""))))


def _nodes(layer: Dict[str, Any]) -> List[str]:
    """Returns the ONNX nodes a layer was made from: by its metadata (8.6 and later), or by its name (before)."""
    named = re.findall(r"\[ONNX Layer: ([^\]]*?)(?: \[profile \d+\])?\]", str(layer.get("Metadata", "")))
    return named or re.split(r"\s\+\s|\|\|", str(layer.get("Name", "")))


def _operand_type(layer: Dict[str, Any]) -> str:
    """Returns the type of a product by its first operand that is no index."""
    for tensor in layer.get("Inputs") or ():
        found = _type_of(str(tensor.get("Format/Datatype", "")))
        if found != "other":
            return found
    return "other"


def _type_of(text: str) -> str:
    """Reads TensorRT's words for a type: ``Half``, ``Row major linear FP16 format``, ``Int8``, ``Float`` and so on."""
    for kind, pattern in (("int8", r"\bint8\b"), ("fp16", r"\b(half|fp16)\b"), ("fp32", r"\b(float|fp32)\b")):
        if re.search(pattern, text, re.IGNORECASE):
            return kind
    return "other"


def _strings(layers: Sequence[Any]) -> List[str]:
    return [
        str(tensor.get("Format/Datatype", ""))
        for layer in layers
        if isinstance(layer, dict)
        for tensor in list(layer.get("Inputs") or ()) + list(layer.get("Outputs") or ())
    ]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Says whether the engine in a folder fits this machine; returns the exit code: 0 it does, 2 not."""
    parser = argparse.ArgumentParser(description="Check that an engine was made for this machine.")
    parser.add_argument("folder", type=Path, help="folder with model.engine and engine.json")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        check_engine(options.folder, machine_facts(import_tensorrt()))
    except (BuildError, OSError, ValueError) as error:
        _LOG.error("error: %s", error)
        return 2
    _LOG.info("%s fits this machine", options.folder / ENGINE)
    return 0


def import_tensorrt() -> Any:
    """Returns the TensorRT module of this machine.

    Raises:
        BuildError: it is absent, or does not load.
    """
    try:
        import tensorrt as trt
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError):
            raise BuildError("the Python package 'tensorrt' is not here; on a Jetson it comes with JetPack") from error
        raise BuildError("the Python package 'tensorrt' does not load: {}".format(error)) from error
    except (OSError, RuntimeError) as error:  # a package whose native libraries are missing or too new
        raise BuildError("the Python package 'tensorrt' does not load: {}".format(error)) from error
    return trt


if __name__ == "__main__":
    sys.exit(main())
