"""P11: an NPU build that lost its task is not published: the ladder goes on to what keeps it, or nothing is written."""

import shutil

import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.core.device import Hexagon
from compressor.core.errors import AcceptanceError
from compressor.models import load_compressed
from compressor.quantize.plan import QuantizationPlan
from devices.profiles import load_profile
from tests.export.qnn.helpers import PHONE, export, needs_qnn, one

pytestmark = pytest.mark.usefixtures("simulated_answers")
LIMIT = QuantizationPlan(max_drop_points=5.0)


@pytest.fixture
def outliers(trained, tmp_path):
    """The same function with weights no eight bits can hold: some values scaled up, and down again where they are used.

    As in MobileBERT, whose residual stream is not normalised, a few channels are hundreds of times larger than others.
    """
    folder = tmp_path / "outliers"
    shutil.copytree(trained.path, folder)
    model = load_compressed(folder)
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            scale = torch.ones(32)
            scale[::8] = 500.0
            layer.attention.self.value.weight.mul_(scale[:, None])
            layer.attention.self.value.bias.mul_(scale)
            layer.attention.output.dense.weight.div_(scale[None, :])
    model.save_pretrained(folder)
    return Checkpoint.open(folder)


def test_the_ladder_goes_on_to_what_keeps_the_task(outliers, tmp_path):
    needs_qnn()
    result = export(outliers, tmp_path / "made", "w8a16", plan=LIMIT)
    artifact = one(result)
    tried = [(attempt["precision"], attempt["accepted"]) for attempt in artifact.manifest.attempts]
    # Which of the two safer precisions holds is the model's to say; eight-bit weights throughout cannot.
    assert tried in ([("w8a16", False), ("mixed", True)], [("w8a16", False), ("mixed", False), ("fp16", True)])
    assert artifact.manifest.precision == tried[-1][0]
    assert artifact.manifest.reference["artifact"] >= artifact.manifest.reference["checkpoint"] - 0.05
    assert "fp16" in artifact.manifest.statistics.gemm_types


def test_nothing_is_written_where_no_precision_of_the_npu_keeps_the_task(outliers, tmp_path):
    needs_qnn()
    profile = load_profile(PHONE)
    weak = profile.model_copy(update={"hexagon": Hexagon(soc_model=57, arch=75, precisions=("w8a16",))})
    with pytest.raises(Exception, match=r"w8a16|signal-to-noise") as caught:
        export(outliers, tmp_path / "made", "w8a16", plan=LIMIT, device=weak)
    assert getattr(caught.value, "exit_code", None) == AcceptanceError.exit_code
    assert [path.name for path in (tmp_path / "made").iterdir()] == []
