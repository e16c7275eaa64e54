from __future__ import annotations

import pytest

from compressor.core.artifact import PRECISIONS
from compressor.core.device import DeviceProfile
from compressor.core.errors import DeviceError, IllegalOnDeviceError, UsageError
from devices.legality import check_legal, legality
from devices.profiles import load_profile, parse_device, profile_names
from devices.targets import target_for

NAMES = ("host", "jetson-orin-nano", "mobile-cpu", "snapdragon-865", "snapdragon-8gen3")


def test_all_profiles_follow_the_schema_and_name_their_sources() -> None:
    assert profile_names() == NAMES
    for name in NAMES:
        profile = load_profile(name)
        assert isinstance(profile, DeviceProfile)
        assert profile.sources
        assert len(set(profile.ladder)) == len(profile.ladder)
        assert {"int8-static", "int8-mixed", "fp16", "fp32"} <= set(profile.ladder)
        assert not any(rule.format in profile.formats and rule.precision is None for rule in profile.illegal)


@pytest.mark.parametrize(
    ("text", "transport", "where", "name"),
    [
        ("host", "local", "", "host@local"),
        ("host@local", "local", "", "host@local"),
        ("snapdragon-865", "unreached", "", "snapdragon-865@unreached"),
        ("snapdragon-865@adb:R5CT12", "adb", "R5CT12", "snapdragon-865@adb:R5CT12"),
        ("snapdragon-865@adb:10.0.0.7:5555", "adb", "10.0.0.7:5555", "snapdragon-865@adb:10.0.0.7:5555"),
        ("jetson-orin-nano@ssh:me@10.0.0.5", "ssh", "me@10.0.0.5", "jetson-orin-nano@ssh:me@10.0.0.5"),
    ],
)
def test_addresses(text: str, transport: str, where: str, name: str) -> None:
    address = parse_device(text)
    assert (address.transport, address.where, address.name) == (transport, where, name)
    assert address.profile.name == text.partition("@")[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("snapdragon-856", "did you mean 'snapdragon-865'"),
        ("../host", "did you mean 'host'"),
        ("", "known: "),
        ("host@", "expected local"),
        ("host@local:1", "expected local"),
        ("jetson-orin-nano@shh:me@box", "did you mean 'ssh'"),
        ("jetson-orin-nano@ssh:", "ssh:me@10.0.0.5"),
        ("snapdragon-865@adb", "adb:R5CT1234"),
    ],
)
def test_what_cannot_be_parsed_is_wrong_use(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_device(text)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["snapdragon-865@adb:X", "jetson-orin-nano@ssh:me@box", "mobile-cpu"])
def test_only_the_host_is_reached(text: str) -> None:
    with pytest.raises(DeviceError) as caught:
        target_for(parse_device(text))
    assert caught.value.exit_code == 4
    assert "host" in str(caught.value)


def test_a_profile_of_another_architecture_is_not_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    with pytest.raises(DeviceError, match="aarch64"):
        target_for(parse_device("snapdragon-865@local"))


@pytest.mark.parametrize("device", ["host", "mobile-cpu", "snapdragon-865", "snapdragon-8gen3"])
def test_tensorrt_is_refused_without_an_nvidia_gpu(device: str) -> None:
    with pytest.raises(IllegalOnDeviceError, match="NVIDIA GPU") as caught:
        check_legal(load_profile(device), "tensorrt", "fp16")
    assert caught.value.remedy.startswith("use ")


def test_legal_combinations_pass_and_precision_rules_hit_their_precision_alone() -> None:
    phone = load_profile("snapdragon-865")
    assert legality(phone, "tflite", "int8") is None
    assert legality(phone, "onnx", "int8") is None
    assert legality(phone, "onnx") is None
    rule = legality(phone, "onnx", "fp16")
    assert rule is not None
    assert "FP32" in rule.reason
    assert legality(load_profile("jetson-orin-nano"), "tensorrt", "fp16") is None


def test_a_jetson_needs_the_tensorrt_that_reads_opset_17() -> None:
    """LayerNormalization is an operator of opset 17, and TensorRT reads it since 8.6."""
    profile = load_profile("jetson-orin-nano")
    oldest, _, newest = str(profile.tensorrt).partition(" - ")
    assert tuple(map(int, oldest.split("."))) >= (8, 6)
    assert tuple(map(int, newest.split("."))) >= (10, 3)
    assert "upgrade to JetPack 6" in profile.facts["jetpack"]


def test_what_a_rule_recommends_instead_is_legal() -> None:
    for name in NAMES:
        profile = load_profile(name)
        for rule in profile.illegal:
            named = [known for known in ("onnx", "tflite", "tensorrt") if known in rule.instead]
            assert named
            for format_name in named:
                found = [precision for precision in PRECISIONS if f"{format_name} {precision}" in rule.instead]
                assert all(legality(profile, format_name, precision) is None for precision in found or [None])


def test_a_format_that_no_rule_names_is_refused_by_the_list_of_formats() -> None:
    profile = load_profile("host").model_copy(update={"formats": ("onnx",), "illegal": ()})
    rule = legality(profile, "tflite", "int8")
    assert rule is not None
    assert rule.instead == "onnx"
