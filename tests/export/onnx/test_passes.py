"""Each graph pass on a small text graph."""

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

from compressor.core.errors import StageError
from export.onnx.passes import FiniteMasksPass, GemmToMatMulPass, ModulePathsPass, TransposedWeightsPass, clean
from export.onnx.policy import module_path
from tests.export.onnx.helpers import add_weight, text_model

RANDOM = np.random.default_rng(0)
LARGE = RANDOM.standard_normal((96, 64)).astype(np.float32)


def run(model, **feed):
    return ReferenceEvaluator(ir.serde.serialize_model(model)).run(None, feed)[0]


def test_a_mask_fill_becomes_finite_and_other_constants_stay():
    model = text_model(
        """m (bool[N] keep, float[N] x) => (float[N] y) {
            low = Constant<value = float {-3.4028235e38}>()
            big = Constant<value = float {1e6}>()
            masked = Where(keep, x, low)
            y = Min(masked, big)
        }"""
    )
    clean(model)
    values = sorted(float(v.const_value.numpy()) for v in model.graph.initializers.values())
    assert values == [-1e4, 1e6]


def test_a_mask_fill_inside_constant_of_shape_becomes_finite():
    model = text_model(
        """m (int64[1] n) => (float[N] y) { y = ConstantOfShape<value = float[1] {-3.4028235e38}>(n) }"""
    )
    assert FiniteMasksPass()(model).modified
    assert run(model, n=np.array([2])).tolist() == [-1e4, -1e4]
    assert not FiniteMasksPass()(model).modified


TIED = """m (float[N,64] x, float[96,64] w, float[64,96] t, int64[K] rows) => (float[N,96] y, float[K,64] e) {
    y = MatMul(x, t)
    e = Gather(w, rows)
}"""


def test_a_weight_and_its_transpose_are_stored_once_and_matmul_keeps_the_plain_one():
    model = text_model(TIED)
    add_weight(model, "w", LARGE)
    add_weight(model, "t", LARGE.T.copy())
    x, rows = RANDOM.standard_normal((2, 64)).astype(np.float32), np.array([3, 5])
    expected = x @ LARGE.T
    assert TransposedWeightsPass()(model).modified
    assert list(model.graph.initializers) == ["t"]
    found = ReferenceEvaluator(ir.serde.serialize_model(model)).run(None, {"x": x, "rows": rows})
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(found[1], LARGE[rows])
    assert next(node for node in model.graph if node.op_type == "MatMul").inputs[1].is_initializer()


def test_a_gemm_takes_the_other_orientation_without_a_transpose():
    model = text_model(
        """m (float[N,64] x, float[96,64] w, float[64,96] t) => (float[N,96] y, float[N,96] z) {
            y = MatMul(x, t)
            z = Gemm<transB = 1>(x, w)
        }"""
    )
    add_weight(model, "w", LARGE)
    add_weight(model, "t", LARGE.T.copy())
    TransposedWeightsPass()(model)
    assert [node.op_type for node in model.graph] == ["MatMul", "Gemm"]
    x = RANDOM.standard_normal((2, 64)).astype(np.float32)
    found = ReferenceEvaluator(ir.serde.serialize_model(model)).run(None, {"x": x})
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_equal_shapes_with_other_values_are_left_alone():
    model = text_model(TIED)
    add_weight(model, "w", LARGE)
    add_weight(model, "t", LARGE.T + 1)
    assert not TransposedWeightsPass()(model).modified
    assert len(model.graph.initializers) == 2


GEMM = """m (float[N,64] x, float[96,64] w, float[96] b) => (float[N,96] y) {
    y = Gemm<transB = 1>(x, w, b)
}"""


def test_gemm_becomes_matmul_and_add_with_its_module_path():
    model = text_model(GEMM)
    model.graph[0].name = "/model/classifier/Gemm"
    add_weight(model, "w", LARGE)
    bias = add_weight(model, "b", RANDOM.standard_normal(96).astype(np.float32)).const_value.numpy()
    x = RANDOM.standard_normal((2, 64)).astype(np.float32)
    assert GemmToMatMulPass()(model).modified
    assert [node.op_type for node in model.graph] == ["MatMul", "Add"]
    assert [module_path(node) for node in model.graph] == ["classifier", "classifier"]
    assert model.graph.outputs[0].name == "y"
    np.testing.assert_allclose(run(model, x=x), x @ LARGE.T + bias, rtol=1e-4, atol=1e-5)


def test_gemm_with_scales_stays():
    model = text_model(GEMM.replace("transB = 1", "transB = 1, alpha = 2.0"))
    add_weight(model, "w", LARGE)
    assert not GemmToMatMulPass()(model).modified


def test_a_module_that_is_applied_again_keeps_its_path():
    model = text_model("m (float[N] x) => (float[N] y) { a = Relu(x)  b = Relu(a)  c = Relu(b)  y = Relu(c) }")
    names = ["/model/stack.0/lin/Relu", "/model/stack.0_1/lin_1/Relu", "/model/stack.0/lin_2/Relu", "/model/lin_2/Relu"]
    for node, name in zip(model.graph, names, strict=True):
        node.name = name
    assert ModulePathsPass(["stack", "stack.0", "stack.0.lin", "lin_2"])(model).modified
    assert [module_path(node) for node in model.graph] == ["stack.0.lin", "stack.0.lin", "stack.0.lin", "lin_2"]
    assert len({node.name for node in model.graph}) == 4


def test_an_operator_outside_the_standard_set_is_refused():
    model = text_model("m (float[N] x) => (float[N] y) { y = com.microsoft.Gelu(x) }")
    with pytest.raises(StageError, match=r"com\.microsoft\.Gelu"):
        clean(model)


def test_aliases_and_copies_of_weights_disappear():
    model = text_model(
        """m (float[N,64] x, float[64,64] a, float[64,64] b) => (float[N,64] y) {
            alias = Identity(a)
            one = MatMul(x, alias)
            two = MatMul(one, b)
            y = MatMul(two, a)
        }"""
    )
    square = RANDOM.standard_normal((64, 64)).astype(np.float32)
    add_weight(model, "a", square)
    add_weight(model, "b", square.copy())
    clean(model)
    assert [node.op_type for node in model.graph] == ["MatMul"] * 3
    assert len(model.graph.initializers) == 1
