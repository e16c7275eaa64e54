"""ARM64 code on this machine: where qemu is, and why it is not used where it is not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from compressor.core.errors import DeviceError
from devices.runners.bundle import Bundle, NativeRuntime, native_bundle

OLDEST = 10
"""qemu-user 7.2 crashes in ONNX Runtime's kernels."""


@cache
def qemu() -> list[str]:
    """Returns the command that runs ARM64 programs with the instructions of a Cortex-A76; skips where there is none."""
    local = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compressor/qemu/usr/bin/qemu-aarch64"
    for path in filter(None, (shutil.which("qemu-aarch64"), str(local) if local.exists() else None)):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\d+)", said)
        if found and int(found[1]) >= OLDEST:
            return [path, "-cpu", "cortex-a76"]
    pytest.skip(f"qemu-aarch64 {OLDEST} or later is not installed (tests/system-packages.sh)")


def bundle_or_skip(architecture: str, runtime: NativeRuntime) -> Bundle:
    try:
        return native_bundle(architecture, runtime)
    except DeviceError as error:
        pytest.skip(f"no {architecture} bundle: {error.message}")
