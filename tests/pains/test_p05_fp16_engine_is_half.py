"""P05: an FP16 engine is FP16 because its graph and its built layers say so, never because it was asked for."""

import pytest

from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.onnx.inspection import gemm_nodes
from export.tensorrt.backend import TensorRTBackend
from export.tensorrt.engines import check_layers
from export.tensorrt.layers import BuiltLayer
from tests.export.onnx.helpers import Source
from tests.export.tensorrt.text import calibration_of

CLASSIFIER = "/model/classifier/Gemm"
MIXED = QuantizationPlan(
    precision="fp16",
    policy=(Rule(pattern="*", precision="fp16"), Rule(pattern="classifier", precision="fp32")),
)


def layer(*nodes, dtype="Half", kind="gemm", inputs=None):
    return BuiltLayer(
        name=f"{dtype} {kind}",
        kind=kind,
        inputs=inputs or (dtype,),
        weights=(dtype,),
        outputs=(dtype,),
        onnx_nodes=nodes,
    )


@pytest.fixture(scope="module")
def models(checkpoint_of, tmp_path_factory):
    source, backend = Source(checkpoint_of("bert")), TensorRTBackend()
    folders = {name: tmp_path_factory.mktemp(name) for name in ("fp32", "fp16", "mixed")}
    backend.convert(source.model, source.spec, folders["fp32"])
    backend.reduce(folders["fp32"], folders["fp16"], "fp16", QuantizationPlan())
    backend.reduce(folders["fp32"], folders["mixed"], "fp16", MIXED)
    return {name: folder / "model.onnx" for name, folder in folders.items()}


@pytest.fixture
def others(models):
    """One Half layer for every product of the graph but the classifier's."""
    return tuple(layer(name) for name in gemm_nodes(models["fp16"]) if name != CLASSIFIER)


def test_the_graph_itself_is_half(models):
    assert set(TensorRTBackend().inspect(models["fp16"]).gemm_types) == {"fp16"}
    assert set(TensorRTBackend().inspect(models["fp32"]).gemm_types) == {"fp32"}


def test_an_engine_of_half_layers_is_proven_product_by_product(models, others):
    assert "18 of 18 fp16 products" in check_layers((*others, layer(CLASSIFIER)), models["fp16"])


def test_one_recognised_layer_does_not_stand_for_the_others(models, others):
    with pytest.raises(StageError, match=f"1 of 18 fp16 .* no Half layer of the engine .*: {CLASSIFIER} "):
        check_layers(others, models["fp16"])
    with pytest.raises(StageError, match="17 of 18"):
        check_layers((layer(CLASSIFIER),), models["fp16"])


def test_an_engine_with_one_float_gemm_is_refused(models, others):
    with pytest.raises(
        StageError, match="1 GEMM layers of the engine are not Half as the graph states, first 'Float gemm'"
    ):
        check_layers((*others, layer(CLASSIFIER, dtype="Float")), models["fp16"])


def test_a_generated_kernel_is_judged_by_its_matrix(models, others):
    """A product of one row is compiled together with the norm before it, which reads FP32 and converts."""
    check_layers((*others, layer(CLASSIFIER, kind="kgen", inputs=("Float",))), models["fp16"])
    with pytest.raises(StageError, match=CLASSIFIER):
        check_layers((*others, layer(CLASSIFIER, kind="kgen", dtype="Float")), models["fp16"])


def test_a_product_in_fp32_by_policy_frees_no_other(models, others):
    classifier = layer(CLASSIFIER, dtype="Float")
    assert "1 products are FP32 by policy" in check_layers((*others, classifier), models["mixed"])
    query = others[0].onnx_nodes[0]
    with pytest.raises(StageError, match="are not Half"):
        check_layers((*others[1:], layer(query, dtype="Float"), classifier), models["mixed"])
    with pytest.raises(StageError, match=query):
        check_layers((*others[1:], classifier), models["mixed"])


def test_a_listing_without_node_names_claims_less(models):
    assert "names no ONNX nodes" in check_layers((layer(),), models["fp16"])


def test_an_fp32_engine_may_be_float(models):
    check_layers((layer(dtype="Float"),), models["fp32"])


@pytest.fixture(scope="module")
def quantized(checkpoint_of, tmp_path_factory):
    """The INT8 graph, and a layer of the stated type for each of its products."""
    source, backend = Source(checkpoint_of("bert")), TensorRTBackend()
    folders = [tmp_path_factory.mktemp(name) for name in ("fp32", "int8")]
    backend.convert(source.model, source.spec, folders[0])
    backend.reduce(*folders, "int8", QuantizationPlan(), calibration_of(source))
    model = folders[1] / "model.onnx"
    kinds = {"int8": "Int8", "fp16": "Half"}
    return model, {name: layer(name, dtype=kinds[kind]) for name, kind in gemm_nodes(model).items()}


def test_an_int8_engine_is_proven_by_the_share_of_its_products(quantized):
    model, layers = quantized
    proof = check_layers(tuple(layers.values()), model)
    assert "14 of 14 int8 products" in proof
    assert "4 of 4 fp16 products" in proof


def test_an_int8_engine_below_the_floor_is_refused(quantized):
    model, layers = quantized
    few = {name: found for name, found in layers.items() if "query" not in name}
    with pytest.raises(StageError, match=r"2 of 14 int8 products .* .at least 90% must be"):
        check_layers(tuple(few.values()), model)


def test_an_int8_product_that_was_built_in_half_is_refused(quantized):
    model, layers = quantized
    name = next(name for name in layers if "query" in name)
    with pytest.raises(StageError, match="are not Half or Int8 as the graph states, first 'Half gemm'"):
        check_layers(tuple({**layers, name: layer(name)}.values()), model)
