"""What a file may be called, by what is in it."""

import pytest

from compressor.core.artifact import ModelStatistics
from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.candidate import require_precision

PLAIN = QuantizationPlan()
POLICY = QuantizationPlan(policy=(Rule(pattern="*", precision="int8"), Rule(pattern="classifier", precision="fp32")))


def file_of(precision, **gemm_types):
    return ModelStatistics(
        format="onnx", precision=precision, size_bytes=1, unique_parameter_bytes=1, parameters=1, lengths=(),
        operators={}, gemm_types=gemm_types,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "asked", "plan"),
    [
        (file_of("fp16", fp16=20), "fp16", PLAIN),
        (file_of("mixed", fp16=10, fp32=10), "fp16", PLAIN),
        (file_of("mixed", fp16=19, fp32=1), "fp16", POLICY),
        (file_of("mixed", int8=2, fp32=8), "int8", POLICY),
    ],
)
def test_a_file_keeps_the_name_that_its_products_bear_out(found, asked, plan):
    require_precision(found, "m", asked, plan)


@pytest.mark.parametrize(
    ("found", "asked", "plan", "says"),
    [
        (file_of("mixed", fp16=9, fp32=11), "fp16", POLICY, "45% of its products are half, expected at least 50%"),
        (file_of("mixed", fp32=20), "fp16", PLAIN, "0% of its products"),
        (file_of("fp32", fp32=20), "fp16", POLICY, "the file holds fp32"),
        (file_of("mixed", int8=9, fp32=1), "int8", PLAIN, "the file holds mixed"),
        (file_of("fp16", fp16=20), "int8", POLICY, "expected int8"),
        (file_of("mixed", fp16=19, fp32=1), "fp32", PLAIN, "expected fp32"),
    ],
)
def test_any_other_name_is_refused_whatever_the_plan_wished(found, asked, plan, says):
    with pytest.raises(StageError, match=says):
        require_precision(found, "m", asked, plan)
