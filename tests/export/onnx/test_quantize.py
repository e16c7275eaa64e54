"""Static INT8 and block-wise INT4 in every family: the signal, the types in the file, sharing, and bad input."""

import json

import numpy as np
import onnx
import pytest

from compressor.core.errors import UsageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.onnx.backend import RANGES_FILE, OnnxBackend
from export.onnx.integers import quantize_columns, quantize_rows
from tests.export.onnx.helpers import Source, io_for
from tests.models import FAMILIES, tiny_checkpoint

STATIC = QuantizationPlan(method="static", reduced_range=True)
INT4 = QuantizationPlan.uniform("int4")


@pytest.fixture(scope="module")
def fp32(checkpoint_of, tmp_path_factory):
    made = {}

    def convert(family):
        if family not in made:
            made[family] = Source(checkpoint_of(family)), tmp_path_factory.mktemp(family)
            OnnxBackend().convert(made[family][0].model, made[family][0].spec, made[family][1])
        return made[family]

    return convert


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("precision", "plan", "decibels"), [("int8", STATIC, 15), ("int4", INT4, 10)])
def test_the_file_carries_the_signal_and_says_its_type(fp32, tmp_path, family, precision, plan, decibels):
    source, folder = fp32(family)
    OnnxBackend().reduce(folder, tmp_path, precision, plan, source.calibration())
    assert source.signal_to_noise_db(OnnxBackend().open(tmp_path, io_for(source.spec), threads=1)) > decibels
    float_file, found = (OnnxBackend().inspect(at / "model.onnx") for at in (folder, tmp_path))
    assert found.precision == precision
    products = sum(float_file.gemm_types.values())
    assert found.gemm_types[precision] == products - found.gemm_types["fp32"] > found.gemm_types["fp32"]
    assert float_file.parameters <= found.parameters < 1.2 * float_file.parameters
    assert found.unique_parameter_bytes < (0.35 if precision == "int8" else 0.28) * float_file.unique_parameter_bytes


@pytest.mark.parametrize(("precision", "plan"), [("int8", STATIC), ("int4", INT4)])
def test_a_shared_layer_is_stored_once_however_deep(tmp_path, precision, plan):
    sizes = []
    for depth in (2, 5):
        source, folder = Source(tiny_checkpoint("albert", tmp_path / f"ck{depth}", layers=depth)), tmp_path / str(depth)
        (folder / "out").mkdir(parents=True)
        OnnxBackend().convert(source.model, source.spec, folder)
        OnnxBackend().reduce(folder, folder / "out", precision, plan, source.calibration())
        graph = onnx.load(folder / "out" / "model.onnx").graph
        sizes.append(sum(onnx.numpy_helper.to_array(item).nbytes for item in graph.initializer))
    grids = 4 * 3 * 5  # one scale and one zero point for each further activation
    assert sizes[1] <= sizes[0] + grids


def test_static_ranges_are_those_of_the_text_and_are_kept(fp32, tmp_path):
    source, folder = fp32("bert")
    OnnxBackend().reduce(folder, tmp_path, "int8", STATIC, source.calibration())
    ranges = json.loads((tmp_path / RANGES_FILE).read_text())["activations"]
    graph = onnx.load(tmp_path / "model.onnx").graph
    stored = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer}
    quantized = [node for node in graph.node if node.op_type == "QuantizeLinear"]
    assert {node.input[0] for node in quantized} == set(ranges)
    for node in quantized:
        found = ranges[node.input[0]]
        assert stored[node.input[1]] == pytest.approx((max(found["high"], 0) - min(found["low"], 0)) / 255, rel=1e-5)
        assert stored[node.input[2]].dtype == np.uint8
        assert found["observer"] != "auto"


def test_mask_sums_and_normalisations_are_not_quantized(fp32, tmp_path):
    source, folder = fp32("bert")
    OnnxBackend().reduce(folder, tmp_path, "int8", STATIC, source.calibration())
    graph = onnx.load(tmp_path / "model.onnx").graph
    made_by = {name: node for node in graph.node for name in node.output}
    readers = {
        n.op_type for n in graph.node for x in n.input if x in made_by and made_by[x].op_type == "DequantizeLinear"
    }
    assert readers == {"MatMul"}


def test_policy_mixes_four_eight_and_thirty_two_bits(fp32, tmp_path):
    _, folder = fp32("bert")
    rules = (
        Rule(pattern="*", precision="int4"),
        Rule(pattern="bert.encoder.layer.1.*", precision="int8"),
        Rule(pattern="classifier", precision="fp32"),
    )
    OnnxBackend().reduce(folder, tmp_path, "int4", QuantizationPlan(precision="int4", policy=rules))
    found = OnnxBackend().inspect(tmp_path / "model.onnx")
    assert {kind: found.gemm_types[kind] for kind in ("int4", "int8")} == {"int4": 7, "int8": 6}
    assert found.precision == "mixed"
    int8 = tmp_path / "int8"
    int8.mkdir()
    OnnxBackend().reduce(folder, int8, "int8", QuantizationPlan(policy=rules))  # int4 means int8 in an INT8 file
    assert OnnxBackend().inspect(int8 / "model.onnx").gemm_types["int8"] == 13


def test_static_without_text_says_what_to_do(fp32, tmp_path):
    _, folder = fp32("bert")
    with pytest.raises(UsageError, match=r"there is no calibration text.*--calibrate FILE, or choose method dynamic"):
        OnnxBackend().reduce(folder, tmp_path, "int8", STATIC)
    assert not any(tmp_path.iterdir())


def test_integers_are_symmetric_and_scaled_by_row_or_column():
    random = np.random.default_rng(0)
    weight = random.standard_normal((40, 6)).astype(np.float32) * 10.0 ** np.arange(-3, 3, dtype=np.float32)
    weight[:, 2] = 0
    for levels in (127, 63):
        integers, scales = quantize_columns(weight, levels)
        assert np.abs(integers).max() == levels and integers.dtype == np.int8 and scales.shape == (6,)
        assert np.all(np.abs(integers * scales - weight) <= scales / 2 * 1.0001)
    integers, scales = quantize_rows(weight)
    assert scales.shape == (40, 1)
    assert np.all(np.abs(integers * scales - weight) <= scales / 2 * 1.0001)
