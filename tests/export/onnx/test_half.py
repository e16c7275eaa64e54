"""The strongly typed FP16 pass on small graphs."""

import numpy as np
import onnx
import onnx_ir as ir

from export.onnx.half import to_half
from tests.export.onnx.helpers import add_weight, text_model, write

F32, F16 = ir.DataType.FLOAT, ir.DataType.FLOAT16
WEIGHT = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)


def types(model, operator):
    """Input types of the nodes of one operator."""
    return [tuple(value.dtype for value in node.inputs) for node in model.graph if node.op_type == operator]


def halved(text, tmp_path, **weights):
    model = text_model(text)
    for name, array in weights.items():
        add_weight(model, name, array)
    to_half(model)
    onnx.checker.check_model(str(write(model, tmp_path / "half.onnx")), full_check=True)
    return model


def test_scores_are_scaled_masked_and_normalised_in_fp32_between_half_products(tmp_path):
    model = halved(
        """m (float[N,8] x, int64[N] mask, float[8,8] w) => (float[N,8] y) {
            one = Constant<value = float {1.0}>()
            low = Constant<value = float {-10000.0}>()
            q = MatMul(x, w)
            kt = Transpose<perm = [1, 0]>(q)
            scores = MatMul(q, kt)
            scaled = Mul(scores, one)
            kept = Cast<to = 1>(mask)
            open = Sub(one, kept)
            bias = Mul(open, low)
            masked = Add(scaled, bias)
            p = Softmax<axis = -1>(masked)
            y = MatMul(p, q)
        }""",
        tmp_path,
        w=WEIGHT,
    )
    assert set(types(model, "MatMul")) == {(F16, F16)}
    assert set(types(model, "Add")) == {(F32, F32)}
    assert types(model, "Softmax") == [(F32,)]
    assert set(types(model, "Mul")) == {(F32, F32)}
    assert model.graph.outputs[0].dtype is F32
    assert model.graph.outputs[0].name == "y"


def test_a_weight_read_by_both_sides_is_stored_once_in_half(tmp_path):
    model = halved(
        """m (float[N,8] x, float[8,8] w) => (float[N,8] y) {
            a = MatMul(x, w)
            p = Pow(w, w)
            y = MatMul(a, p)
        }""",
        tmp_path,
        w=np.abs(WEIGHT),
    )
    (weight,) = model.graph.initializers.values()
    assert weight.const_value.dtype is F16
    assert types(model, "Pow") == [(F32, F32)]
    assert sum(node.op_type == "Cast" for node in model.graph) <= 4


def test_positions_are_computed_in_fp32_because_half_cannot_count(tmp_path):
    model = halved(
        """m (int64[N] ids, float[9,8] table, float[8,8] w) => (float[N,8] y) {
            two = Constant<value = float {2.0}>()
            f = Cast<to = 1>(ids)
            d = Div(f, two)
            r = Ceil(d)
            i = Cast<to = 7>(r)
            e = Gather(table, i)
            y = MatMul(e, w)
        }""",
        tmp_path,
        table=np.ones((9, 8), np.float32),
        w=WEIGHT,
    )
    assert types(model, "Div") == [(F32, F32)]
    assert types(model, "Ceil") == [(F32,)]
    assert types(model, "Gather")[0][0] is F16
    assert types(model, "MatMul") == [(F16, F16)]


def test_one_cast_serves_all_readers(tmp_path):
    model = halved(
        """m (float[N,8] x, float[8,8] w, float[8] s) => (float[N,8] y) {
            n = LayerNormalization(x, s)
            a = MatMul(n, w)
            b = MatMul(n, w)
            y = MatMul(a, w)
        }""",
        tmp_path,
        w=WEIGHT,
        s=np.ones(8, np.float32),
    )
    casts = [node for node in model.graph if node.op_type == "Cast"]
    assert len(casts) == 2  # the normalised rows to half once, and the output back
    assert types(model, "LayerNormalization") == [(F32, F32)]


def test_named_nodes_stay_fp32(tmp_path):
    model = text_model("m (float[N,8] x, float[8,8] w) => (float[N,8] y) { [keep] y = MatMul(x, w) }")
    add_weight(model, "w", WEIGHT)
    to_half(model, lambda node: node.name == "keep")
    assert types(model, "MatMul") == [(F32, F32)]
