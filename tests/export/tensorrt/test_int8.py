"""Q/DQ: where it goes, what it holds, and that the policy decides."""

import numpy as np
import onnx_ir as ir
import pytest

from compressor.core.errors import UsageError
from compressor.quantize.plan import ActivationRange, QuantizationPlan, Rule
from export.onnx import files
from export.tensorrt.backend import TensorRTBackend
from export.tensorrt.qdq import LEVELS, quantize_weight, scale_of
from tests.export.onnx.helpers import Source
from tests.export.tensorrt.text import calibration_of

BACKEND = TensorRTBackend()
INT8 = Rule(pattern="*", precision="int8")


@pytest.fixture(scope="module")
def converted(checkpoint_of, tmp_path_factory):
    source = Source(checkpoint_of("albert"))
    folder = tmp_path_factory.mktemp("fp32")
    BACKEND.convert(source.model, source.spec, folder)
    return source, folder


@pytest.fixture
def reduce(converted, tmp_path):
    def made(*rules, **more):
        source, folder = converted
        BACKEND.reduce(folder, tmp_path, "int8", QuantizationPlan(policy=rules, **more), calibration_of(source))
        return files.load(tmp_path / "model.onnx")

    return made


def by_type(model, kind):
    return [node for node in model.graph if node.op_type == kind]


def dtype(value):
    return value.const_value.dtype if value.const_value is not None else value.dtype


def test_only_inputs_of_products_are_quantised_and_symmetrically(reduce):
    model = reduce(INT8)
    for node in by_type(model, "QuantizeLinear"):
        assert node.inputs[2].const_value.numpy() == np.zeros((), dtype=np.int8)
        assert node.inputs[1].const_value.shape.rank() == 0
        (reader,) = node.outputs[0].consumers()
        assert reader.op_type == "DequantizeLinear"
    readers = {user.op_type for node in by_type(model, "DequantizeLinear") for user in node.outputs[0].consumers()}
    assert readers <= {"MatMul", "Gemm", "Gather"}
    for node in by_type(model, "Gemm"):
        assert dtype(node.inputs[2]) is ir.DataType.FLOAT16
    assert all(len(value.consumers()) > 0 for value in model.graph.initializers.values())


def test_a_shared_weight_is_stored_once_and_in_int8(reduce, converted):
    model = reduce(INT8)
    _, folder = converted
    before = files.load(folder / "model.onnx")
    weights = [v for v in model.graph.initializers.values() if dtype(v) is ir.DataType.INT8 and len(v.shape) == 2]
    tables = {id(node.inputs[0]) for node in by_type(before, "Gather") if node.inputs[0].const_value is not None}
    matrices = {
        id(value) for node in before.graph if node.op_type in ("MatMul", "Gemm") for value in node.inputs[:2]
        if value.const_value is not None
    }  # fmt: skip
    assert len(weights) == len(matrices | tables)
    assert max(len(node.outputs[0].consumers()) for node in by_type(model, "DequantizeLinear")) >= 2


def test_embedding_tables_stay_half_where_the_plan_says_so(reduce):
    model = reduce(INT8, quantize_embeddings=False)
    tables = [node.inputs[0] for node in by_type(model, "Gather") if node.inputs[0].is_initializer()]
    assert {dtype(table) for table in tables if len(table.shape) == 2} == {ir.DataType.FLOAT16}


def test_the_policy_decides_product_by_product(reduce, converted, tmp_path):
    reduce(
        INT8,
        Rule(pattern="*.ffn", precision="fp16"),
        Rule(pattern="classifier", precision="fp32"),
    )
    found = BACKEND.inspect(tmp_path / "model.onnx").gemm_types
    assert found == {"int8": 12, "fp16": 6, "fp32": 1}


def test_a_pattern_without_a_module_and_a_plan_without_int8_are_errors(reduce):
    with pytest.raises(UsageError, match=r"'encoder[.]nowhere' matches no module"):
        reduce(INT8, Rule(pattern="encoder.nowhere", precision="fp16"))
    with pytest.raises(UsageError, match="no matrix product in int8"):
        reduce(Rule(pattern="*", precision="fp16"))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("axis", [0, 1])
def test_codes_and_scales_give_the_weight_back(dtype, axis):
    draw = np.random.default_rng(0)
    array = (draw.normal(size=(24, 16)) * np.exp(draw.normal(size=(24, 16)))).astype(np.float32)
    codes, scale = quantize_weight(array, axis, dtype)
    wide = np.expand_dims(scale.astype(np.float32), 1 - axis)
    assert scale.dtype == dtype
    assert codes.min() >= -LEVELS
    assert np.abs(codes * wide - array).max(axis=1 - axis).max() <= wide.max() / 2 * (1 + 1e-3)
    assert np.all(np.abs(codes * wide - array) <= wide / 2 * (1 + 1e-3))


def test_a_scale_never_cuts_the_largest_value_and_never_vanishes():
    for dtype in (np.float16, np.float32):
        for largest in (0.0, 1e-9, 0.1, 1.0, 4.7, 1e4):
            scale = scale_of(largest, dtype)
            assert scale > 0
            assert float(scale) * LEVELS >= largest * (1 - 1e-7)


def test_ranges_that_training_found_take_the_place_of_observed_ones(reduce):
    path = "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn"
    model = reduce(INT8, ranges={path: ActivationRange(input=(-3.0, 12.7), output=(-1.0, 1.0))})
    scales = [float(node.inputs[1].const_value.numpy()) for node in by_type(model, "QuantizeLinear")]
    assert min(abs(scale - 0.1) for scale in scales) < 1e-3
