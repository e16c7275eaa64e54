"""What produced a number: library versions and the machine."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata
from pathlib import Path

TRACKED = (
    "compressor",
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "onnx",
    "onnxruntime",
    "onnxruntime-qnn",
    "onnxscript",
    "litert-torch",
    "ai-edge-quantizer",
    "ai-edge-litert",
    "tensorrt",
    "tensorrt-rtx-cu12",
    "accelerate",
)


@cache
def version(package: str) -> str | None:
    """Returns the installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(packages: tuple[str, ...] = TRACKED) -> dict[str, str]:
    """Returns {distribution: version} of those that are installed, with Python's own."""
    found = {name: value for name in packages if (value := version(name)) is not None}
    return {"python": platform.python_version(), **found}


@cache
def machine() -> dict[str, str]:
    """Returns the host's fingerprint: system, architecture, CPU model, cores, memory, INT8 and FP16 features."""
    import psutil

    info = _cpuinfo()
    flags = info.get("flags", info.get("Features", "")).split()
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "amx_bf16", "asimddp", "i8mm", "asimdhp")
    return {
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "cpu": info.get("model name", platform.processor() or "unknown"),
        "cores": str(psutil.cpu_count(logical=True) or 1),
        "memory_gb": f"{psutil.virtual_memory().total / 1e9:.0f}",
        "cpu_features": " ".join(name for name in wanted if name in flags),
    }


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs if key.strip()}
