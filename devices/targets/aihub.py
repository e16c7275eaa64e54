"""Qualcomm AI Hub: phones of the vendor's farm, for whoever has an account there. Not run on hardware.

The service compiles an ONNX file itself, runs it on a real phone and reports every single time and where each layer
ran; there is no shell, so it is no :class:`devices.targets.target.Target`. An address is
``snapdragon-8gen3@aihub:Samsung Galaxy S24 (Family)``. The client (extra ``aihub``) reads the account's token from its
own configuration; nothing here sees it. Everything that is sent leaves this machine.

Written from https://workbench.aihub.qualcomm.com/docs/hub/api.html and tested with a stand-in for its client only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from compressor.core.errors import DeviceError, MissingExtraError, nearest
from devices.profiles import DeviceAddress

RUNTIME = "precompiled_qnn_onnx"
"""An ONNX file around a QNN context, as the ``onnx-qnn`` format makes it here."""
COMPILE_OPTIONS = f"--target_runtime {RUNTIME} --compute_unit npu"
RUN_OPTIONS = "--compute_unit npu"


@dataclass(frozen=True, kw_only=True)
class RemoteProfile:
    """What the service measured on one phone."""

    device: str
    inference_ms: tuple[float, ...]
    """Every single run."""
    peak_memory_mb: float | None
    layers: dict[str, int]
    """Compute unit (``NPU``, ``CPU``, ``GPU``) to how many layers ran there."""
    url: str

    @property
    def delegated(self) -> float:
        """The share of layers on the NPU, 0 to 1."""
        return self.layers.get("NPU", 0) / max(1, sum(self.layers.values()))


class Remote(Protocol):
    """A service that compiles, times and runs a model on a phone that is not here."""

    def compile(self, model: Path, *, tokens: int, inputs: tuple[str, ...]) -> Any:
        """Returns the service's handle of ``model``, compiled for int32 inputs of shape (1, tokens)."""
        ...

    def profile(self, compiled: Any) -> RemoteProfile:
        """Times a compiled model."""
        ...

    def logits(self, compiled: Any, feeds: Mapping[str, list[np.ndarray]]) -> np.ndarray:
        """Runs a compiled model on padded sentences; returns float32 logits of shape (sentences, labels)."""
        ...


class AiHub:
    """One phone of the farm.

    Args:
        device: the phone's name there, e.g. ``Samsung Galaxy S24 (Family)``.
        client: the ``qai_hub`` module, or anything with its functions; None: imports it.

    Raises:
        MissingExtraError: the client is not installed.
        DeviceError: the account is not set up, or knows no such phone.
    """

    def __init__(self, device: str, client: Any = None) -> None:
        self._hub = _client() if client is None else client
        try:
            known = [item.name for item in self._hub.get_devices()]
        except Exception as error:  # the client's errors have no base of their own that could be named here
            raise DeviceError(
                f"Qualcomm AI Hub does not answer: {error}", remedy="run 'qai-hub configure --api_token TOKEN' once"
            ) from error
        if device not in known:
            raise DeviceError(f"Qualcomm AI Hub has no phone '{device}'", remedy=nearest(device, known))
        self._name, self._device = device, self._hub.Device(device)

    def compile(self, model: Path, *, tokens: int, inputs: tuple[str, ...]) -> Any:
        """Returns the service's handle of ``model`` (a plain ONNX file), compiled for one length."""
        job = self._hub.submit_compile_job(
            model=str(model),
            device=self._device,
            input_specs=dict.fromkeys(inputs, ((1, tokens), "int32")),
            options=COMPILE_OPTIONS,
        )
        compiled = job.get_target_model()
        if compiled is None:
            raise DeviceError(
                f"Qualcomm AI Hub did not compile {model.name}: see {job.url}", remedy="read its log there"
            )
        return compiled

    def profile(self, compiled: Any) -> RemoteProfile:
        """Times a compiled model; the service reports microseconds and bytes."""
        job = self._hub.submit_profile_job(model=compiled, device=self._device, options=RUN_OPTIONS)
        found = job.download_profile()
        try:
            summary, detail = found["execution_summary"], found["execution_detail"]
            times = summary.get("all_inference_times") or [summary["estimated_inference_time"]]
            peak = summary.get("estimated_inference_peak_memory")
        except (KeyError, TypeError, AttributeError) as error:
            raise DeviceError(
                f"Qualcomm AI Hub's profile has no {error}: see {job.url}", remedy="update the extra 'aihub'"
            ) from error
        return RemoteProfile(
            device=self._name,
            inference_ms=tuple(float(item) / 1000 for item in times),
            peak_memory_mb=None if peak is None else peak / 1e6,
            layers=dict(Counter(str(layer.get("compute_unit", "unknown")) for layer in detail)),
            url=str(job.url),
        )

    def logits(self, compiled: Any, feeds: Mapping[str, list[np.ndarray]]) -> np.ndarray:
        """Runs a compiled model; ``feeds`` holds one int32 array of shape (1, tokens) a sentence and input."""
        job = self._hub.submit_inference_job(
            model=compiled, device=self._device, inputs=dict(feeds), options=RUN_OPTIONS
        )
        outputs = job.download_output_data()
        if not outputs:
            raise DeviceError(f"Qualcomm AI Hub returned no answers: see {job.url}", remedy="read its log there")
        (rows,) = list(outputs.values())[:1]
        return np.concatenate([np.asarray(row, dtype=np.float32).reshape(1, -1) for row in rows])


def remote_for(address: DeviceAddress, client: Any = None) -> Remote:
    """Returns the service behind an address such as ``snapdragon-8gen3@aihub:Samsung Galaxy S24 (Family)``.

    Raises:
        MissingExtraError: the client is not installed.
        DeviceError: the address is no such address, or the service has no such phone.
    """
    if address.transport != "aihub":
        raise DeviceError(f"{address.name} is not on Qualcomm AI Hub", remedy="write PROFILE@aihub:PHONE")
    return AiHub(address.where, client)


def _client() -> Any:
    if find_spec("qai_hub") is None:
        raise MissingExtraError("qai-hub", "aihub")
    import qai_hub

    return qai_hub
