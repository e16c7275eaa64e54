"""P07: squares inside a decomposed normalisation leave half range; they are computed in an FP32 island."""

import numpy as np
import onnx_ir as ir

from export.onnx.half import to_half
from export.onnx.half_audit import emulated
from export.onnx.ranges import session_of
from tests.export.onnx.helpers import add_weight, text_model

NORM = """m (float[N,8] x, float[8,8] w) => (float[N,8] y) {
    two = Constant<value = float {2.0}>()
    small = Constant<value = float {0.00001}>()
    h = MatMul(x, w)
    mean = ReduceMean<keepdims = 1, axes = [-1]>(h)
    d = Sub(h, mean)
    squares = Pow(d, two)
    variance = ReduceMean<keepdims = 1, axes = [-1]>(squares)
    safe = Add(variance, small)
    root = Sqrt(safe)
    y = Div(d, root)
}"""


def test_squares_beyond_half_range_stay_finite_and_right():
    random = np.random.default_rng(0)
    x = (400 * random.standard_normal((5, 8))).astype(np.float32)
    weight = random.standard_normal((8, 8)).astype(np.float32)
    model = text_model(NORM, opset=17)
    add_weight(model, "w", weight)
    exact = session_of(model).run(None, {"x": x})[0]
    assert np.square(x @ weight).max() > 65504
    to_half(model)
    found = session_of(emulated(model), optimize=False).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, exact, atol=0.01)
    kept = {node.op_type: node.inputs[0].dtype for node in model.graph if node.inputs}
    assert kept["Pow"] is kept["ReduceMean"] is kept["Sqrt"] is ir.DataType.FLOAT
    assert kept["MatMul"] is ir.DataType.FLOAT16
