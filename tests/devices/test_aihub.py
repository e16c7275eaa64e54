"""Qualcomm AI Hub through a stand-in for its client; nothing here reaches the service."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from compressor.core.errors import DeviceError, MissingExtraError
from devices.profiles import parse_device
from devices.targets import aihub, target_for

PHONE = "Samsung Galaxy S24 (Family)"


class Hub:
    """Answers as the service's documentation says it does, and keeps what it was asked."""

    Device = SimpleNamespace

    def __init__(self, profile=None, outputs=None, compiled="handle"):
        self.asked = {}
        self.profile, self.outputs, self.compiled = profile, outputs, compiled
        self.Device = lambda name: SimpleNamespace(name=name)

    def get_devices(self):
        return [SimpleNamespace(name=PHONE), SimpleNamespace(name="Snapdragon 8 Elite QRD")]

    def submit_compile_job(self, **asked):
        self.asked["compile"] = asked
        return SimpleNamespace(get_target_model=lambda: self.compiled, url="https://hub/c")

    def submit_profile_job(self, **asked):
        self.asked["profile"] = asked
        return SimpleNamespace(download_profile=lambda: self.profile, url="https://hub/p")

    def submit_inference_job(self, **asked):
        self.asked["run"] = asked
        return SimpleNamespace(download_output_data=lambda: self.outputs, url="https://hub/i")


PROFILE = {
    "execution_summary": {
        "estimated_inference_time": 1500, "all_inference_times": [1400, 1500, 1700],
        "estimated_inference_peak_memory": 64_000_000,
    },
    "execution_detail": [{"name": "a", "compute_unit": "NPU"}] * 3 + [{"name": "b", "compute_unit": "CPU"}],
}  # fmt: skip


def remote(hub):
    return aihub.remote_for(parse_device(f"snapdragon-8gen3@aihub:{PHONE}"), hub)


def test_a_length_is_compiled_for_the_npu_with_int32_inputs():
    hub = Hub()
    assert remote(hub).compile(Path("plain.onnx"), tokens=32, inputs=("input_ids", "attention_mask")) == "handle"
    asked = hub.asked["compile"]
    assert asked["input_specs"] == {"input_ids": ((1, 32), "int32"), "attention_mask": ((1, 32), "int32")}
    assert asked["device"].name == PHONE and "precompiled_qnn_onnx" in asked["options"]


def test_every_time_is_kept_in_milliseconds_with_where_the_layers_ran():
    found = remote(Hub(profile=PROFILE)).profile("handle")
    assert found.inference_ms == (1.4, 1.5, 1.7)
    assert (found.peak_memory_mb, found.layers, found.delegated) == (64.0, {"NPU": 3, "CPU": 1}, 0.75)


def test_logits_come_back_in_order():
    hub = Hub(outputs={"logits": [np.float32([[1, 2]]), np.float32([[3, 4]])]})
    feeds = {"input_ids": [np.zeros((1, 8), np.int32)] * 2}
    np.testing.assert_array_equal(remote(hub).logits("handle", feeds), [[1, 2], [3, 4]])
    assert hub.asked["run"]["inputs"] == feeds


@pytest.mark.parametrize(("hub", "do", "says"), [
    (Hub(compiled=None), lambda item: item.compile(Path("plain.onnx"), tokens=8, inputs=()), "did not compile"),
    (Hub(profile={}), lambda item: item.profile("handle"), "execution_summary"),
    (Hub(outputs={}), lambda item: item.logits("handle", {}), "no answers"),
])  # fmt: skip
def test_what_the_service_does_not_do_is_told_with_the_job_s_address(hub, do, says):
    with pytest.raises(DeviceError, match=rf"{says}.*https://hub"):
        do(remote(hub))


def test_an_unknown_phone_another_address_and_no_client_are_refused(monkeypatch):
    with pytest.raises(DeviceError, match="no phone 'Samsung Galaxy S42'") as unknown:
        aihub.AiHub("Samsung Galaxy S42", Hub())
    assert PHONE in unknown.value.remedy
    with pytest.raises(DeviceError, match="is not on Qualcomm AI Hub"):
        aihub.remote_for(parse_device("snapdragon-8gen3@adb:R5"), Hub())
    with pytest.raises(DeviceError, match="has no shell"):
        target_for(parse_device(f"snapdragon-8gen3@aihub:{PHONE}"))
    monkeypatch.setattr(aihub, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="qai-hub"):
        aihub.AiHub(PHONE)
