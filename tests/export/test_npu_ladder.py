"""The ladder of an NPU: from the request on, each safer than the one before."""

import pytest

from compressor.quantize.plan import QuantizationPlan
from export.ladder import npu_rungs

WHOLE = ("w8a8", "w8a16", "mixed", "fp16")
LIMIT = QuantizationPlan(max_drop_points=0.5)


@pytest.mark.parametrize(("precision", "offered", "plan", "expected"), [
    ("w8a8", WHOLE, LIMIT, WHOLE),
    ("w8a16", WHOLE, LIMIT, ("w8a16", "mixed", "fp16")),
    ("fp16", WHOLE, LIMIT, ("fp16",)),
    ("w8a8", ("w8a8", "w8a16"), LIMIT, ("w8a8", "w8a16")),
    ("w8a8", WHOLE, QuantizationPlan(), ("w8a8",)),
    ("fp16", ("w8a8", "w8a16"), LIMIT, ("fp16",)),
])  # fmt: skip
def test_rungs(precision, offered, plan, expected):
    assert tuple(rung.precision for rung in npu_rungs(precision, plan, offered)) == expected
