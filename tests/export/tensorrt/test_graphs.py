"""The graph for TensorRT 8: older operators only, the same answers, and what is pinned."""

import shutil

import numpy as np
import onnx_ir as ir
import pytest

from compressor.core.errors import StageError, UsageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.onnx import files
from export.onnx.predictor import OnnxPredictor
from export.tensorrt import graphs
from export.tensorrt.backend import TensorRTBackend
from export.tensorrt.graphs import WEAK_FILE, graphs_in, weak_graph_needed
from export.tensorrt.versions import parse_range
from tests.export.onnx.helpers import Source
from tests.export.tensorrt.text import calibration_of

BACKEND = TensorRTBackend()


@pytest.fixture(scope="module")
def made(checkpoint_of, tmp_path_factory):
    """Returns (source, {precision: folder}) for boards with TensorRT 8.0 to 8.2; made by family on first use."""
    known = {}

    def make(family):
        if family not in known:
            source = Source(checkpoint_of(family))
            folders = {name: tmp_path_factory.mktemp(f"{family}-{name}") for name in ("source", "fp32", "fp16", "int8")}
            spec = source.spec.model_copy(update={"tensorrt": "8.0 - 8.2"})
            BACKEND.convert(source.model, spec, folders["source"])
            for precision in ("fp32", "fp16", "int8"):
                plan = QuantizationPlan(precision=precision)
                BACKEND.reduce(folders["source"], folders[precision], precision, plan, calibration_of(source))
            known[family] = (source, folders)
        return known[family]

    return make


@pytest.mark.parametrize("family", ["bert", "albert", "roberta"])
def test_the_decomposed_graph_gives_pytorchs_answers(made, family):
    source, folders = made(family)
    for precision in ("fp32", "fp16"):
        weak = OnnxPredictor(folders[precision] / WEAK_FILE, threads=1, fixed_batch=1)
        assert source.relative_error(weak) <= 1e-4
    weak = OnnxPredictor(folders["int8"] / WEAK_FILE, threads=1, fixed_batch=1)
    assert source.signal_to_noise_db(weak) > 15


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_it_holds_only_what_tensorrt_8_reads(made, precision):
    _, folders = made("bert")
    model = files.load(folders[precision] / WEAK_FILE)
    assert files.opset_of(model) == 13
    assert "LayerNormalization" not in {node.op_type for node in model.graph}
    stored = {value.const_value.dtype for value in model.graph.initializers.values() if value.const_value.size > 1}
    allowed = {ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.INT32}
    assert stored <= (allowed | {ir.DataType.INT8} if precision == "int8" else allowed)
    for node in model.graph:  # int8 only as zero points: weights are quantised by the builder
        if node.op_type == "QuantizeLinear":
            assert not node.inputs[2].const_value.numpy().any()
        if node.op_type == "DequantizeLinear":
            assert node.inputs[0].producer().op_type == "QuantizeLinear"


def test_the_islands_are_pinned_and_so_is_what_must_be_half(made):
    _, folders = made("bert")
    typed, weak = graphs_in(folders["fp16"], "fp16")
    assert (typed.oldest, typed.pinned, weak.oldest) == ((8, 6), None, (8, 0))
    names = {str(node.name): node.op_type for node in files.load(folders["fp16"] / WEAK_FILE).graph}
    assert {*weak.pinned.fp32, *weak.pinned.fp16} <= names.keys()
    kinds = {names[name] for name in weak.pinned.fp32}
    assert {"Softmax", "Sqrt", "ReduceMean", "Div"} <= kinds
    assert {names[name] for name in weak.pinned.fp16} == {"MatMul", "Gemm"}
    assert set(weak.products["fp16"]) == set(weak.pinned.fp16)
    typed, weak = graphs_in(folders["int8"], "int8")
    assert typed.oldest == (10, 0)
    assert set(weak.products) == {"int8", "fp16"}
    assert not {*weak.products["int8"]} & {*weak.pinned.fp16}
    assert graphs_in(folders["fp32"], "fp32")[1].pinned == graphs.PinnedLayers()


def test_a_module_kept_in_fp32_by_policy_is_pinned_to_it(made, tmp_path):
    _, folders = made("bert")
    rules = (Rule(pattern="*", precision="fp16"), Rule(pattern="classifier", precision="fp32"))
    BACKEND.reduce(folders["source"], tmp_path, "fp16", QuantizationPlan(precision="fp16", policy=rules))
    weak = graphs_in(tmp_path, "fp16")[1]
    assert "/model/classifier/Gemm" in weak.pinned.fp32
    assert "/model/classifier/Gemm" not in weak.pinned.fp16


def test_a_product_that_measured_ranges_keep_in_fp32_is_pinned_to_it(made, tmp_path):
    _, folders = made("bert")
    widest, plan = "/model/bert/pooler/dense/Gemm", QuantizationPlan(precision="fp16")
    shutil.copyfile(folders["fp16"] / "model.onnx", tmp_path / "model.onnx")
    graphs.write_weak_graph(
        folders["source"] / "model.onnx",
        tmp_path / WEAK_FILE,
        "fp16",
        plan,
        quantized=None,
        widened=frozenset([widest]),
    )  # fmt: skip
    weak = graphs_in(tmp_path, "fp16")[1]
    assert widest in weak.pinned.fp32
    assert widest not in weak.products["fp16"]


@pytest.mark.parametrize(
    ("versions", "precision", "needed"),
    [
        (None, "fp16", False),
        ("10.3", "int8", False),
        ("8.6 - 10.3", "fp16", False),
        ("8.6 - 10.3", "int8", True),
        ("8.5", "fp16", True),
        ("8.0 - 8.2", "fp32", True),
    ],
)
def test_the_devices_versions_decide_whether_it_is_written(made, versions, precision, needed):
    model = ir.Model(ir.Graph([], [], nodes=[]), ir_version=9)
    if versions is not None:
        model.metadata_props["compressor.tensorrt"] = parse_range(versions).text
    assert weak_graph_needed(model, precision) == needed


def test_a_graph_that_answers_otherwise_is_refused(made, tmp_path, monkeypatch):
    _, folders = made("bert")
    decompose = graphs.to_weak

    def broken(model, full, quantized):
        pinned = decompose(model, full, quantized)
        for value in model.graph.initializers.values():
            if str(value.name).startswith("layer_norm_epsilon"):
                value.const_value = ir.tensor(np.float32(0.5), name=value.name)
        return pinned

    monkeypatch.setattr(graphs, "to_weak", broken)
    with pytest.raises(StageError, match="differs from"):
        BACKEND.reduce(folders["source"], tmp_path, "fp16", QuantizationPlan(precision="fp16"))


def test_ranges_of_versions_are_read_and_nonsense_is_not():
    assert parse_range("10.3").text == "10.3 - 10.3"
    assert parse_range("8.6 - 10.3").oldest == (8, 6)
    assert parse_range("8.0.1 - 8.2").newest == (8, 2)
    for text in ("", "new", "10.3 - 8.6", "8.0 - 8.2 - 8.4"):
        with pytest.raises(UsageError, match="no range"):
            parse_range(text)
