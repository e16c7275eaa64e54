"""Makes the native runner into a folder that runs on a device with nothing installed.

It holds the runner, the runtime's library out of its wheel for that architecture and, for phones, whose C library is
another, the GNU loader and libraries it was built against. It is made once and kept under the user's cache folder.
"""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from compressor.core.cache import cache_folder
from compressor.core.environment import version
from compressor.core.errors import DeviceError, MissingExtraError
from compressor.core.hashing import combine, file_hashes

NativeRuntime = Literal["onnxruntime", "litert"]
SOURCES = Path(__file__).parent / "native"
RUNNER = "compressor-runner"
_FILES = ("main.c", "onnxruntime.c", "litert.c")
_GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libstdc++.so.6", "libgcc_s.so.1")
_LOADERS = {"aarch64": "ld-linux-aarch64.so.1", "x86_64": "ld-linux-x86-64.so.2"}
_TAGS = ("manylinux_2_17", "manylinux2014", "manylinux_2_24", "manylinux_2_26", "manylinux_2_27", "manylinux_2_28")
_WAIT_S = 600


@dataclass(frozen=True)
class Library:
    """A runtime's shared library and the wheel it comes in."""

    package: str
    module: str
    extra: str
    pattern: str
    """Glob of the library's path in the wheel."""


LIBRARIES: dict[NativeRuntime, Library] = {
    "onnxruntime": Library("onnxruntime", "onnxruntime", "onnx", "onnxruntime/capi/libonnxruntime.so.*"),
    "litert": Library("ai-edge-litert", "ai_edge_litert", "tflite", "ai_edge_litert/libLiteRt.so"),
}


@dataclass(frozen=True)
class Bundle:
    """A ready folder."""

    path: Path
    library: str
    """File name of the runtime's library."""
    loader: str | None
    """File name of the GNU loader; None: only for devices with glibc of their own."""
    label: str
    """Name and version of the runtime."""

    def command(self, folder: str, runtime: NativeRuntime, model: str, request: str, result: str) -> list[str]:
        """Returns the command that runs it from ``folder`` on the device."""
        start = [f"{folder}/{self.loader}", "--library-path", folder] if self.loader else []
        return [*start, f"{folder}/{RUNNER}", runtime, f"{folder}/{self.library}", model, request, result]


def native_bundle(architecture: str, runtime: NativeRuntime, *, cache: Path | None = None) -> Bundle:
    """Returns the bundle for an architecture and runtime, made if it is not there yet.

    Args:
        architecture: as ``uname -m`` says it: ``aarch64`` or ``x86_64``.
        runtime: whose library goes in.
        cache: where bundles are kept; default :func:`compressor.core.cache.cache_folder`.

    Raises:
        DeviceError: no compiler for the architecture, or the wheel cannot be had.
        MissingExtraError: the runtime is not installed here, so that its version is not known.
    """
    library = LIBRARIES[runtime]
    found = version(library.package)
    if found is None:
        raise MissingExtraError(library.package, library.extra)
    if architecture not in _LOADERS:
        raise DeviceError(
            f"there is no native runner for {architecture}; expected {' or '.join(_LOADERS)}",
            remedy="install Python with the runtime on the device",
        )
    sources = {name: digest for name, digest in file_hashes(SOURCES).items() if name.endswith((".c", ".h"))}
    key = combine({**sources, "runtime": f"{runtime} {found}", "architecture": architecture, "layout": "1"})[:24]
    folder = (cache or cache_folder("bundles")) / f"{runtime}-{architecture}-{key}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as name:
            made = Path(name) / "bundle"
            made.mkdir()
            _fill(made, architecture, library, found)
            if not folder.is_dir():
                made.rename(folder)
    names = sorted(path.name for path in folder.iterdir())
    return Bundle(
        path=folder,
        library=next(name for name in names if PurePosixPath(name).match(PurePosixPath(library.pattern).name)),
        loader=_LOADERS[architecture] if _LOADERS[architecture] in names else None,
        label=f"{library.package} {found}",
    )


def compiler(architecture: str) -> list[str] | None:
    """Returns the command of a C compiler for ``architecture``, or None: GNU's, else zig's from PyPI."""
    names = [f"{architecture}-linux-gnu-gcc"]
    if platform.machine() == architecture and sys.platform == "linux":
        names = ["cc", "gcc", *names]
    if found := next(filter(None, map(shutil.which, names)), None):
        return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-gnu.2.28"]
    return None


def _fill(folder: Path, architecture: str, library: Library, wanted: str) -> None:
    command = compiler(architecture)
    if command is None:
        raise DeviceError(
            f"no C compiler for {architecture} is installed; it builds the runner for devices without Python",
            remedy=f"apt install gcc-{architecture.replace('_', '-')}-linux-gnu, or pip install ziglang",
        )
    sources = [str(SOURCES / name) for name in _FILES]
    _check([*command, "-O2", "-std=gnu11", "-o", str(folder / RUNNER), *sources, "-ldl"], "the runner does not compile")
    _copy_library(folder, architecture, library, wanted)
    if command[0] == sys.executable:
        return
    for name in (_LOADERS[architecture], *_GLIBC):
        path = Path(_check([*command, f"-print-file-name={name}"], name).strip())
        if path.is_absolute():
            shutil.copyfile(path.resolve(), folder / name)
    (folder / _LOADERS[architecture]).chmod(0o755)


def _copy_library(folder: Path, architecture: str, library: Library, wanted: str) -> None:
    if platform.machine() == architecture and sys.platform == "linux":
        spec = importlib.util.find_spec(library.module)
        root = Path(str(spec.origin)).parents[1] if spec else Path()
        if local := next(iter(sorted(root.glob(library.pattern))), None):
            shutil.copyfile(local, folder / local.name)
            return
    with tempfile.TemporaryDirectory() as name:
        tags = [word for tag in _TAGS for word in ("--platform", f"{tag}_{architecture}")]
        _check(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", name,
             "--python-version", f"{sys.version_info.major}.{sys.version_info.minor}", *tags,
             f"{library.package}=={wanted}"],
            f"the wheel of {library.package} {wanted} for {architecture} cannot be had",
        )  # fmt: skip
        (wheel,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            inside = next(item for item in archive.namelist() if PurePosixPath(item).match(library.pattern))
            (folder / PurePosixPath(inside).name).write_bytes(archive.read(inside))


def _check(command: list[str], problem: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_WAIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"{problem}: {error}", remedy="install the runtime on the device instead") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise DeviceError(
            f"{problem}: {said[-1] if said else 'no message'}", remedy="install the runtime on the device instead"
        )
    return done.stdout
