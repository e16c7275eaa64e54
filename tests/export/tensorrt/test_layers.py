"""Reading the built layers out of a verbose log, and judging them."""

import pytest

from compressor.core.errors import StageError
from export.tensorrt.engines import check_layers
from export.tensorrt.layers import BuiltLayer, built_layers, nodes_built_in


def tensor(name, dims, dtype):
    return f"{{ Name: {name}, Dimensions: [{dims}], Strides: [1], Datatype: {dtype}, Format: (Linear) Row major }}"


def line(name, kind, *, inputs, constants=(), outputs=("Half",), nodes=()):
    sections = [
        f"Inputs: [ {', '.join(tensor(f'i{i}', '1,-1,32', d) for i, d in enumerate(inputs))}]",
        f"Constants: [ {', '.join(tensor(f'c{i}', dims, d) for i, (dims, d) in enumerate(constants))}]",
        f"Outputs: [ {', '.join(tensor(f'o{i}', '1,-1,96', d) for i, d in enumerate(outputs))}]",
    ]
    metadata = "".join(f"[ONNX Layer: {node}]" for node in nodes)
    return f"Name: {name}, LayerType: {kind}, {', '.join(sections)}, TacticName: t, StreamId: 0, Metadata: {metadata}"


GEMM = line("q+k+v", "gemm", inputs=["Half"], constants=[("1,32,96", "Half"), ("1", "Float")], nodes=["/q/MatMul"])
FUSED = line("ffn", "runtime_fusion", inputs=["Half"], constants=[("32,64", "Half")], nodes=["/ffn/MatMul [profile 1]"])
NORM = line("norm", "kgen", inputs=["Half", "Float"], constants=[("1,1,32", "Float")], nodes=["/ln/LayerNormalization"])
FLOAT = line("bad", "gemm", inputs=["Float"], constants=[("32,96", "Float")], nodes=["/bad/MatMul"])


def log(*lines):
    return ["[MemUsage] something", "\n".join(["Layers:", *lines, "Bindings:", "input_ids"]), "done"]


def test_layers_are_read_with_their_types():
    first, second, third = built_layers(log(GEMM, FUSED, NORM))
    assert (first.kind, first.inputs, first.weights, first.outputs) == ("gemm", ("Half",), ("Half",), ("Half",))
    assert (first.is_gemm, second.is_gemm, third.is_gemm) == (True, True, False)
    assert second.onnx_nodes == ("/ffn/MatMul",)
    assert third.inputs == ("Half", "Float")


def test_scalars_do_not_count_as_operands():
    gemm, fused, norm = built_layers(log(GEMM, FUSED, NORM))
    assert gemm.multiplies_in("Half")
    assert fused.multiplies_in("Half")
    assert not norm.multiplies_in("Half")
    (wrong,) = built_layers(log(FLOAT))
    assert wrong.operand_types == {"Float"}


def test_a_product_with_one_number_as_its_result_has_a_vector_for_weights():
    dot = line("dot", "kgen", inputs=["Float"], constants=[("1,32", "Half")], nodes=["/model/classifier/Gemm"])
    one = dot.replace("Name: o0, Dimensions: [1,-1,96]", "Name: o0, Dimensions: [1,1]")
    (many,), (single,) = built_layers(log(dot)), built_layers(log(one))
    assert many.weights == ()
    assert single.weights == ("Half",)
    assert nodes_built_in([single], "Half") == {"/model/classifier/Gemm"}


def test_a_log_without_layers_proves_nothing(tmp_path):
    assert built_layers(["building", "done"]) == ()
    with pytest.raises(StageError, match="cannot be read"):
        check_layers((), tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("inputs", "half"),
    [(("Half", "Half", "Float", "Half"), True), (("Half", "Float", "Float", "Half"), False), (("Float",) * 4, False)],
)
def test_a_fused_attention_may_read_its_mask_in_float_and_nothing_else(inputs, half):
    nodes = ("/layer.0/attention/self/MatMul", "/layer.0/attention/self/MatMul_1")
    attention = BuiltLayer(
        name="_gemm_mha_v2_myl0_7", kind="kgen", inputs=inputs, weights=(), outputs=("Half",), onnx_nodes=nodes
    )
    assert attention.is_gemm
    assert (nodes_built_in([attention], "Half") == frozenset(nodes)) == half
    assert attention.multiplies_in("Half") == half


@pytest.mark.parametrize(
    ("inputs", "half"),
    [
        (["Half"] * 8 + ["Float"], True),
        (["Half"] * 8, True),
        (["Half"] * 8 + ["Int32"], True),
        (["Half", "Float"], False),
        (["Half", "Half", "Float", "Float"], False),
        (["Float"] * 8, False),
        (["Half"], False),
    ],
)
def test_scores_written_out_as_sums_may_read_their_mask_in_another_type(inputs, half):
    (scores,) = built_layers(log(line("sums", "kgen", inputs=inputs, nodes=["/self/MatMul", "/self/Softmax"])))
    assert scores.multiplies_in("Half") is half
