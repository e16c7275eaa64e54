from __future__ import annotations

import pytest

from compressor.core.artifact import PRECISIONS
from compressor.core.device import DeviceProfile, Illegal
from compressor.core.errors import DeviceError, IllegalOnDeviceError, UsageError
from devices.legality import check_legal, legality
from devices.profiles import load_profile, parse_device, profile_names
from devices.targets import target_for

NAMES = profile_names()
NAMED_IN_THE_DOCS = {
    "host", "mobile-cpu", "snapdragon-865", "snapdragon-8gen3", "pixel-4", "pixel-10", "raspberry-pi-4",
    "raspberry-pi-5", "jetson-nano", "jetson-xavier-nx", "jetson-orin-nano", "jetson-orin-nx", "jetson-agx-orin",
}  # fmt: skip


def test_all_profiles_follow_the_schema_and_name_their_sources() -> None:
    assert set(NAMES) >= NAMED_IN_THE_DOCS
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
        ("pixel-4@usb:", "for example pixel-4@adb:R5CT1234"),
        ("pixel-4@bluetooth:x", "known: adb, aihub, local, ssh"),
        ("snapdragon-865@adb", "adb:R5CT1234"),
    ],
)
def test_what_cannot_be_parsed_is_wrong_use(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_device(text)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_kind_of_device_alone_is_wrong_use() -> None:
    with pytest.raises(UsageError) as caught:
        target_for(parse_device("mobile-cpu"))
    assert caught.value.exit_code == 2
    assert "mobile-cpu@adb:SERIAL" in str(caught.value)


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


@pytest.mark.parametrize(
    "name", sorted(NAMED_IN_THE_DOCS - {"host", "mobile-cpu", "snapdragon-865", "snapdragon-8gen3"})
)
def test_a_profile_tells_cores_memory_and_widths(name: str) -> None:
    profile = load_profile(name)
    assert profile.architecture == "aarch64"
    assert profile.memory_gb
    assert profile.widths_multiple_of
    assert sum(cluster.count for cluster in profile.clusters) >= 4
    assert all(cluster.top_ghz is None or 1 < cluster.top_ghz < 5 for cluster in profile.clusters)
    assert legality(profile, profile.formats[0], "fp32") is None


def test_a_jetson_states_the_tensorrt_it_brings_and_what_its_gpu_cannot_do() -> None:
    for name in (name for name in NAMES if name.startswith("jetson")):
        oldest, _, newest = str(load_profile(name).tensorrt).partition(" - ")
        assert (8, 0) <= tuple(map(int, oldest.split("."))) < tuple(map(int, newest.split(".")))
        assert legality(load_profile(name), "tensorrt", "fp16") is None
    with pytest.raises(IllegalOnDeviceError, match=r"compute capability 6\.1"):
        check_legal(load_profile("jetson-nano"), "tensorrt", "int8")


@pytest.mark.parametrize("name", ["raspberry-pi-4", "jetson-nano"])
def test_cores_without_half_arithmetic_are_not_offered_fp16(name: str) -> None:
    profile = load_profile(name)
    assert "asimdhp" not in profile.cpu_features
    rule = legality(profile, "tflite", "fp16")
    assert rule is not None
    assert "FP16 arithmetic" in rule.reason
    assert legality(profile, "tflite", "int8") is None


def test_a_rule_may_be_for_some_families_only() -> None:
    rule = Illegal(
        format="tflite", precision="fp16", families=("mobilebert",), reason="overflows", instead="tflite int8"
    )
    profile = load_profile("pixel-4").model_copy(update={"illegal": (rule,)})
    assert legality(profile, "tflite", "fp16", family="mobilebert") is rule
    assert legality(profile, "tflite", "fp16", family="bert") is None
    assert legality(profile, "tflite", "fp16") is None
    with pytest.raises(IllegalOnDeviceError, match="overflows"):
        check_legal(profile, "tflite", "fp16", family="mobilebert")
