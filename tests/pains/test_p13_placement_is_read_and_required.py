"""P13: a build that leaves operators on the CPU says which and why, and ``delegated: 1.0`` refuses it."""

import pytest

from benchmarks.budget import Budget
from benchmarks.gate import judge
from export.qnn import backend
from tests.export.qnn.helpers import PHONE, export, needs_qnn, one

pytestmark = pytest.mark.usefixtures("simulated_answers")


def test_a_gelu_in_pieces_leaves_the_npu_and_is_refused(trained, tmp_path, monkeypatch):
    needs_qnn()
    # Opset 18 has no Gelu: it becomes Div, Erf, Add and Mul, and the NPU has no Erf for 16-bit values.
    monkeypatch.setattr(backend, "_OPTIONS", backend.TraceOptions(opset=18, integer="int32",
                                                                  dynamic_batch=False))  # fmt: skip
    artifact = one(export(trained, tmp_path / "made", "w8a16", selection=None, report=None))
    placement = artifact.manifest.placement
    assert placement.cpu_nodes["Erf"] == 2 and placement.contexts > 1
    assert 0 < placement.delegated < 1
    assert "Erf" in placement.reasons["Erf"] and "not supported" in placement.reasons["Erf"]
    assert "Erf" in (artifact.path / "README.md").read_text()
    budget = Budget.model_validate({"device": PHONE, "delegated": 1.0})
    (check,) = judge(budget, artifact, None)
    assert (check.verdict, check.value) == ("over_budget", placement.delegated)
    assert "Erf" in check.detail
    (allowed,) = judge(Budget.model_validate({"device": PHONE, "delegated": 0.5}), artifact, None)
    assert allowed.verdict == "pass"
