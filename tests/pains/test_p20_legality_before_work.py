"""P20: a precision without kernels is slower, not faster; so the table is asked before anything is made."""

import pytest

from compressor.core.artifact import Artifact
from compressor.core.device import DeviceProfile, Illegal
from compressor.core.errors import IllegalOnDeviceError, UsageError
from compressor.quantize.plan import QuantizationPlan
from export.build import export_artifacts
from export.onnx.backend import OnnxBackend
from export.source import ExportRequest
from tests.models import SENTENCES, keyword_split

SPLIT = keyword_split(40, seed=2)
NO_INT8 = DeviceProfile(
    name="old-gpu", title="a GPU without integer kernels", kind="linux", architecture="any", formats=("onnx",),
    illegal=(Illegal(format="onnx", precision="int8", reason="casts go around every product", instead="onnx fp16"),),
)  # fmt: skip


def request(**changes):
    base = {
        "formats": ("onnx",), "precisions": ("int8",), "lengths": (16,), "parity_texts": SENTENCES,
        "parity_source": "test", "name": "t", "device": NO_INT8,
    }  # fmt: skip
    return ExportRequest(**{**base, **changes})


@pytest.fixture
def reduced(monkeypatch):
    """The precisions that were made."""
    made = []
    real = OnnxBackend.reduce

    def reduce(self, source, output, precision, plan, calibration=None):
        made.append(precision)
        real(self, source, output, precision, plan, calibration)

    monkeypatch.setattr(OnnxBackend, "reduce", reduce)
    return made


def test_what_the_device_cannot_run_is_refused_with_the_reason_and_never_made(trained, tmp_path, reduced):
    with pytest.raises(UsageError, match="casts go around every product") as caught:
        export_artifacts(trained, request(), tmp_path)
    assert caught.value.remedy == "use onnx fp16"
    assert reduced == []


def test_the_ladder_goes_past_it_and_says_why(trained, tmp_path, reduced):
    plan = QuantizationPlan(max_drop_points=1.0)
    (artifact,) = export_artifacts(trained, request(plan=plan, selection=SPLIT), tmp_path).artifacts
    assert artifact.manifest.precision == "fp16"
    assert reduced == ["fp16"]
    assert all("old-gpu" in attempt["reason"] for attempt in artifact.manifest.attempts[:-1])
    assert Artifact.load(artifact.path).manifest.attempts[-1]["accepted"]


def test_the_command_refuses_before_it_reads_the_model(tmp_path):
    from compressor.app.convert import convert

    with pytest.raises(IllegalOnDeviceError, match="onnx fp16 on snapdragon-865"):
        convert("no/such/model", to="onnx", precision="fp16", output=tmp_path / "out", device="snapdragon-865")
    assert not (tmp_path / "out").exists()
