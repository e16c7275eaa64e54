"""P41: what a Hexagon generation cannot do is known before anything is compiled for it."""

import pytest

from compressor.core.errors import CompressorError, IllegalOnDeviceError, UsageError
from devices.legality import check_legal, legality
from devices.profiles import load_profile, profile_names
from tests.export.qnn.helpers import export, needs_qnn, one

pytestmark = pytest.mark.usefixtures("simulated_answers")


def test_every_snapdragon_names_its_soc_and_its_generation():
    found = {name: load_profile(name).hexagon for name in profile_names() if name.startswith("snapdragon-")}
    assert {name: (item.soc_model, item.arch) for name, item in found.items()} == {
        "snapdragon-865": (21, 66), "snapdragon-888": (30, 68), "snapdragon-8gen1": (36, 69),
        "snapdragon-8gen2": (43, 73), "snapdragon-8gen3": (57, 75), "snapdragon-8elite": (69, 79),
        "snapdragon-8elite-gen5": (87, 81),
    }  # fmt: skip


def test_a_precision_the_generation_lacks_is_refused_before_any_work(trained, tmp_path):
    profile = load_profile("snapdragon-888")
    with pytest.raises(IllegalOnDeviceError, match=r"Hexagon v68 does not compute in fp16") as caught:
        check_legal(profile, "onnx-qnn", "fp16")
    assert "w8a" in caught.value.remedy
    needs_qnn()
    with pytest.raises(UsageError, match="does not compute in fp16"):
        export(trained, tmp_path / "made", "fp16", device=profile)


@pytest.mark.parametrize(("device", "precision"), [("snapdragon-888", "w8a8"), ("snapdragon-8elite-gen5", "w8a16")])
def test_what_a_profile_offers_compiles(trained, tmp_path, device, precision):
    needs_qnn()
    result = export(trained, tmp_path / "made", precision, device=load_profile(device), selection=None, report=None)
    assert one(result).manifest.placement.delegated == 1.0


def test_a_phone_without_such_an_npu_is_told_what_to_use_instead(trained, tmp_path):
    profile = load_profile("snapdragon-865")
    assert legality(profile, "onnx-qnn", "w8a8").instead == "tflite int8, on the CPU"
    with pytest.raises(IllegalOnDeviceError, match="v66"):
        check_legal(profile, "onnx-qnn", "w8a8")
    needs_qnn()
    with pytest.raises(CompressorError, match="v66"):
        export(trained, tmp_path / "made", "w8a8", device=profile)


def test_no_device_an_unknown_one_and_no_calibration_are_refused(trained, tmp_path):
    with pytest.raises(UsageError, match="unknown device") as unknown:
        load_profile("snapdragon-8gen4")
    assert "snapdragon-8gen" in unknown.value.remedy
    needs_qnn()
    for changes, says in (({"device": None}, "none was named"), ({"calibration_texts": ()}, "no text to observe")):
        with pytest.raises(CompressorError, match=says):
            export(trained, tmp_path / "made", "w8a8", **changes)
    assert list((tmp_path / "made").iterdir()) == []
