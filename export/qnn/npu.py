"""The NPU a graph is compiled for: one SoC, its Hexagon generation, and the libraries that compile for it."""

from __future__ import annotations

import json

from compressor.core.artifact import Precision
from compressor.core.device import DeviceProfile, Hexagon
from compressor.core.environment import version
from compressor.core.errors import IllegalOnDeviceError, UsageError
from compressor.core.schema import Record

METADATA_KEY = "compressor.npu"
"""Metadata of a graph that says which NPU it is for."""


class Npu(Record):
    """A device's NPU by name, as it travels with a graph."""

    device: str
    """The device profile's name."""
    hexagon: Hexagon

    @property
    def text(self) -> str:
        """E.g. ``snapdragon-8gen3 (SoC 57, Hexagon v75)``."""
        return f"{self.device} (SoC {self.hexagon.soc_model}, Hexagon v{self.hexagon.arch})"

    def to_text(self) -> str:
        """Returns the metadata's value."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True)


def npu_of(profile: DeviceProfile | None) -> Npu:
    """Returns the NPU of a device.

    Raises:
        UsageError: no device was named.
        IllegalOnDeviceError: the device has no NPU that the compiler knows.
    """
    if profile is None:
        raise UsageError(
            "the format onnx-qnn is compiled for one SoC and none was named", remedy="add --device snapdragon-8gen3"
        )
    if profile.hexagon is None or not profile.hexagon.precisions:
        what = "no Hexagon NPU" if profile.hexagon is None else f"Hexagon v{profile.hexagon.arch} alone"
        raise IllegalOnDeviceError(
            f"{profile.title} has {what}, for which there is no runtime that loads a compiled context",
            remedy="use tflite int8 on its CPU",
        )
    return Npu(device=profile.name, hexagon=profile.hexagon)


def check_precision(npu: Npu, precision: Precision) -> None:
    """Raises IllegalOnDeviceError for a precision that this Hexagon generation does not compute in."""
    if precision not in npu.hexagon.precisions:
        offered = " or ".join(npu.hexagon.precisions)
        raise IllegalOnDeviceError(f"{npu.text} does not compute in {precision}", remedy=f"use {offered}")


def provider_options(npu: Npu) -> dict[str, str]:
    """Returns the options of the QNN execution provider for this NPU.

    The graph's own inputs and outputs are quantised within the context, so that no node is left on the CPU for them.
    Float parts compute in half precision where the generation has it.
    """
    return {
        "soc_model": str(npu.hexagon.soc_model),
        "htp_arch": str(npu.hexagon.arch),
        "offload_graph_io_quantization": "0",
        "enable_htp_fp16_precision": "1" if "fp16" in npu.hexagon.precisions else "0",
    }


def library_versions() -> dict[str, str]:
    """Returns the versions of ONNX Runtime, its QNN provider and the QNN SDK inside that."""
    from onnxruntime_qnn.build_and_package_info import qnn_version

    return {
        "onnxruntime": version("onnxruntime") or "unknown",
        "onnxruntime-qnn": version("onnxruntime-qnn") or "unknown",
        "qnn": str(qnn_version),
    }
