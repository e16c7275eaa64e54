"""Records which enums and attributes the Python bindings of each TensorRT generation have.

TensorRT itself is not on PyPI, but its bindings are: a compiled module that links against the absent libraries by a
dozen C functions. With empty libraries in their place, each with those functions returning null, the module imports,
and every enum and class of it can be read as it really is; nothing of TensorRT runs. Needs gcc, readelf and nm.

    pip download --no-deps -d wheels tensorrt-bindings==8.6.1 tensorrt-cu12-bindings==10.0.1
    pip download --no-deps -d wheels tensorrt-cu12-bindings==10.3.0 (and ==11.4.0.106, each by itself)
    python -m benchmarks.studies.tensorrt_bindings wheels export/tensorrt/device/bindings.json

TensorRT-RTX is read from the installed package, whose libraries are there.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

CLASSES = (
    "Builder", "IBuilderConfig", "INetworkDefinition", "ILayer", "ITensor", "IOptimizationProfile", "ITimingCache",
    "IHostMemory", "OnnxParser", "Runtime", "ICudaEngine", "EngineInspector", "ILogger",
)  # fmt: skip
ENUMS = (
    "BuilderFlag", "ComputeCapability", "DataType", "LayerInformationFormat", "LayerType", "MemoryPoolType",
    "NetworkDefinitionCreationFlag", "ProfilingVerbosity",
)  # fmt: skip
"""What the build script touches, and its classes above."""
_WHEEL = re.compile(r"tensorrt(?:_cu\d+)?_bindings-(?P<version>[\d.]+)-")
_HOW = "imported from the wheel {name} with empty libraries in place of {libraries}"


def main(arguments: list[str]) -> int:
    """Writes the table of all wheels in a folder; each is read in a process of its own."""
    if len(arguments) == 1:
        print(json.dumps(read_wheel(Path(arguments[0]))))
        return 0
    wheels, target = map(Path, arguments)
    table: dict[str, Any] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        found = _WHEEL.match(wheel.name)
        if found:
            command = [sys.executable, "-m", "benchmarks.studies.tensorrt_bindings", str(wheel)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            table[found["version"]] = json.loads(done.stdout)
    if importlib.util.find_spec("tensorrt_rtx") is not None:
        module = importlib.import_module("tensorrt_rtx")
        table[f"rtx-{module.__version__}"] = {"read": "imported from the installed package", **contents(module)}
    target.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def read_wheel(wheel: Path) -> dict[str, Any]:
    """Returns the enums and attributes of the bindings in a wheel."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        library = folder / "tensorrt_bindings" / "tensorrt.so"
        needed = _put_empty_libraries(library, folder)
        spec = importlib.util.spec_from_file_location("tensorrt", library)
        if spec is None or spec.loader is None:
            raise ValueError(f"{wheel} holds no compiled module")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return {"read": _HOW.format(name=wheel.name, libraries=", ".join(needed)), **contents(module)}


def contents(module: ModuleType) -> dict[str, Any]:
    """Returns ``{"enums": {name: {member: number}}, "classes": {name: [attribute]}}`` of a module."""
    return {
        "enums": {
            name: {member: int(number) for member, number in sorted(getattr(module, name).__members__.items())}
            for name in ENUMS
            if hasattr(module, name)
        },
        "classes": {
            name: sorted(item for item in dir(getattr(module, name)) if not item.startswith("_"))
            for name in CLASSES
            if hasattr(module, name)
        },
    }


def _put_empty_libraries(library: Path, folder: Path) -> list[str]:
    """Loads a library under each absent name, in which every undefined function of ``library`` returns null."""
    needed = re.findall(r"\[(libnv[^\]]+)\]", _output("readelf", "-d", str(library)))
    undefined = [line.split()[-2:] for line in _output("nm", "-D", "--undefined-only", str(library)).splitlines()]
    names = [name for kind, name in undefined if kind == "U" and "@" not in name and not re.match(r"_?Py|dl", name)]
    source = folder / "empty.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in names), encoding="utf-8")
    for name in needed:
        _output("gcc", "-shared", "-fPIC", "-o", str(folder / name), str(source), f"-Wl,-soname,{name}")
        ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL)
    return needed


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
