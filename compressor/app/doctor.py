"""``doctor``: what is installed, what each missing piece would bring, and what this machine is."""

from __future__ import annotations

import shutil
from importlib.util import find_spec

from compressor.core.environment import machine, version, versions
from compressor.core.schema import Record


class Part(Record):
    """One package or program."""

    name: str
    needed_for: str
    found: str | None
    """Version, or path of a program; None where it is missing."""
    remedy: str = ""


class Diagnosis(Record):
    """The whole machine."""

    machine: dict[str, str]
    required: tuple[Part, ...]
    optional: tuple[Part, ...]

    @property
    def healthy(self) -> bool:
        """True where everything required is there."""
        return all(part.found for part in self.required)


_REQUIRED = {
    "torch": "training and conversion",
    "transformers": "reading models",
    "tokenizers": "tokenisation",
    "accelerate": "training",
    "onnx": "ONNX and TensorRT export",
    "onnxscript": "graph passes",
    "onnxruntime": "running ONNX",
}
_OPTIONAL = {
    "litert-torch": ("litert_torch", "TFLite export", "tflite"),
    "ai-edge-quantizer": ("ai_edge_quantizer", "TFLite INT8 and FP16", "tflite"),
    "ai-edge-litert": ("ai_edge_litert", "running TFLite", "tflite"),
    "tensorrt": ("tensorrt", "building engines on an NVIDIA machine", "tensorrt"),
    "tensorrt-rtx-cu12": ("tensorrt_rtx", "building TensorRT-RTX plans without a GPU", "rtx"),
    "onnxruntime-qnn": ("onnxruntime_qnn", "compiling for Snapdragon NPUs, and simulating them", "qnn"),
    "qai-hub": ("qai_hub", "timing on the phones of Qualcomm AI Hub", "aihub"),
    "onnxruntime-extensions": ("onnxruntime_extensions", "ONNX models that take the text itself", "text"),
    "datasets": ("datasets", "Parquet and datasets folders", "data"),
}
_PROGRAMS = {"adb": "reaching Android devices", "ssh": "reaching boards and Jetsons"}


def doctor() -> Diagnosis:
    """Returns what is installed here."""
    required = tuple(
        Part(name=name, needed_for=use, found=version(name), remedy=f"pip install {name}")
        for name, use in _REQUIRED.items()
    )
    packages = tuple(
        Part(name=name, needed_for=use, found=version(name) if find_spec(module) else None,
             remedy=f"pip install 'compressor[{extra}]'")
        for name, (module, use, extra) in _OPTIONAL.items()
    )  # fmt: skip
    programs = tuple(
        Part(name=name, needed_for=use, found=shutil.which(name), remedy=f"install {name} with your system's packages")
        for name, use in _PROGRAMS.items()
    )
    ours = {name: found for name in ("compressor", "python") if (found := versions((name,)).get(name))}
    return Diagnosis(machine={**ours, **machine()}, required=required, optional=(*packages, *programs))
