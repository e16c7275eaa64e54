"""What is said of a file is what is in it, also where others made it."""

import numpy as np
import pytest

from compressor.core.errors import ArtifactError
from export.onnx.backend import OnnxBackend
from export.onnx.inspection import statistics
from tests.export.onnx.helpers import add_weight, text_model, write

WEIGHT = np.random.default_rng(2).standard_normal((32, 32)).astype(np.float32)


def found(tmp_path, text, opset=18, **weights):
    model = text_model(text, opset)
    for name, array in weights.items():
        add_weight(model, name, array)
    return statistics(write(model, tmp_path / "m.onnx"))


def test_copies_of_a_weight_count_once(tmp_path):
    result = found(
        tmp_path,
        """m (float[N,32] x, float[32,32] a, float[32,32] b, float[32,32] c) => (float[N,32] y) {
            one = MatMul(x, a)  two = MatMul(one, b)  y = MatMul(two, c)
        }""",
        a=WEIGHT,
        b=WEIGHT.copy(),
        c=WEIGHT.T.copy(),
    )
    assert result.unique_parameter_bytes == WEIGHT.nbytes
    assert result.parameters == WEIGHT.size
    assert result.size_bytes > 3 * WEIGHT.nbytes
    assert result.gemm_types == {"fp32": 3}
    assert result.operators == {"MatMul": 3}
    assert result.opset == 18


def test_half_weights_behind_casts_are_mixed_not_fp16(tmp_path):
    result = found(
        tmp_path,
        "m (float[N,32] x, float16[32,32] w) => (float[N,32] y) { f = Cast<to = 1>(w)  y = MatMul(x, f) }",
        w=WEIGHT.astype(np.float16),
    )
    assert result.gemm_types == {"fp32": 1}
    assert result.precision == "mixed"


def test_int8_needs_nine_tenths_of_the_weights(tmp_path):
    text = """m (uint8[N,32] x, float[N,32] f, int8[32,32] q, float[32,K] w) => (int32[N,32] y, float[N,K] z) {
        y = MatMulInteger(x, q)
        z = MatMul(f, w)
    }"""
    eight_bit = np.ones((32, 32), np.int8)
    few = found(tmp_path, text, q=eight_bit, w=WEIGHT[:, :3].copy())
    many = found(tmp_path, text, q=eight_bit, w=WEIGHT[:, :8].copy())
    assert (few.precision, many.precision) == ("int8", "mixed")
    assert few.gemm_types == {"int8": 1, "fp32": 1}


def test_weight_only_int8_computes_in_fp32(tmp_path):
    text = """m (float[N,32] x, int8[32,32] q) => (float[N,32] y) {
        s = Constant<value = float {0.1}>()
        w = DequantizeLinear(q, s)
        y = MatMul(x, w)
    }"""
    result = found(tmp_path, text, q=np.ones((32, 32), np.int8))
    assert result.gemm_types == {"fp32": 1}
    assert result.precision == "mixed"


def test_operators_of_other_makers_do_not_stop_the_reading(tmp_path):
    text = "m (float[N,32] x, float[32,32] w) => (float[N,32] y) { a = com.microsoft.Gelu(x)  y = MatMul(a, w) }"
    result = found(tmp_path, text, w=WEIGHT)
    assert result.precision == "fp32"
    assert result.operators == {"Gelu": 1, "MatMul": 1}


@pytest.mark.parametrize("damage", ["empty", "text", "cut"])
def test_a_damaged_file_is_named(tmp_path, damage):
    model = text_model("m (float[N,32] x, float[32,32] w) => (float[N,32] y) { y = MatMul(x, w) }")
    add_weight(model, "w", WEIGHT)
    path = write(model, tmp_path / "m.onnx")
    data = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"no model at all", "cut": data[: len(data) // 2]}[damage])
    with pytest.raises(ArtifactError, match=r"m\.onnx"):
        OnnxBackend().inspect(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ArtifactError, match=r"gone\.onnx"):
        OnnxBackend().inspect(tmp_path / "gone.onnx")
