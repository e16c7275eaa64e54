import pytest

from devices.profiles import load_profile, profile_names
from export.tflite.delegate_rules import DELEGATES, GPU, NNAPI, QNN_DSP, QNN_FLOAT, QNN_INTEGER
from export.tflite.delegates import _Node, _reason, _Tensor, broadcasts, delegate_lines, delegate_reports
from export.tflite.flatbuffer import read
from tests.export.tflite.samples import sample


def node(name: str, *inputs: tuple[str, tuple[int, ...], bool], output: str = "float32", version: int = 1) -> _Node:
    return _Node(name, version, tuple(_Tensor(*item) for item in inputs), (_Tensor(output, (1, 16), False),))


FLOATS, EIGHT = ("float32", (1, 16, 32), False), ("int8", (32, 32), True)


@pytest.mark.parametrize(
    ("delegate", "operator", "part"),
    [
        (GPU, node("CUMSUM", ("int32", (1, 16), False), ("int32", (), True), output="int32"), "floats"),
        (GPU, node("CAST", ("bool", (1, 16), False), output="int32"), "casts"),
        (GPU, node("ADD", ("float32", (16, 32), False), FLOATS), "ranks"),
        (GPU, node("GATHER_ND", FLOATS), "not an operator"),
        (NNAPI, node("RESHAPE", ("int32", (1, 16), False), output="int32"), "floats or 8-bit"),
        (GPU, node("MUL", ("float32", (1, 16, 1), False), ("float32", (1, 1, 16), False)), "shorter"),
        (GPU, node("GATHER", ("float32", (30, 8), True), ("int32", (1, 16), False)), "more than one dimension"),
        (NNAPI, node("DEQUANTIZE", ("int16", (32, 32), True), version=2), "8-bit values"),
        (NNAPI, node("CONCATENATION", ("int32", (1, 16), False), output="int32"), "floats or 8-bit"),
        (NNAPI, node("EMBEDDING_LOOKUP", ("int32", (16,), False), EIGHT), "float32"),
        (QNN_FLOAT, node("FULLY_CONNECTED", FLOATS, EIGHT), "dynamic INT8"),
        (QNN_DSP, node("MUL", FLOATS, FLOATS), "v66 has integers only"),
        (QNN_INTEGER, node("MUL", FLOATS, FLOATS), "v68 has integers only"),
    ],
)
def test_what_a_delegate_refuses(delegate, operator, part):
    assert part in _reason(delegate, operator)


@pytest.mark.parametrize(
    ("delegate", "operator"),
    [
        (GPU, node("FULLY_CONNECTED", FLOATS, EIGHT)),
        (GPU, node("EMBEDDING_LOOKUP", ("int32", (16,), False), EIGHT)),
        (GPU, node("CAST", ("bool", (1, 16), False))),
        (GPU, node("MUL", ("float32", (1, 16, 32), False), ("float32", (1, 1, 32), False))),
        (NNAPI, node("DEQUANTIZE", ("float16", (32, 32), True), version=3)),
        (NNAPI, node("FULLY_CONNECTED", FLOATS, EIGHT, version=5)),
        (QNN_FLOAT, node("FULLY_CONNECTED", FLOATS, ("float32", (32, 32), True))),
        (QNN_DSP, node("MUL", ("int8", (1, 16), False), ("int8", (1, 16), False), output="int8")),
    ],
)
def test_what_a_delegate_takes(delegate, operator):
    assert _reason(delegate, operator) is None


@pytest.mark.parametrize(
    ("left", "right", "yes"),
    [((1, 4, 16, 16), (1, 16), True), ((1, 4, 16, 16), (16, 16), False), ((1, 16, 32), (16, 32), False),
     ((1, 16, 32), (32,), True), ((1, 4, 16, 16), (4, 16, 16), True), ((2, 4, 16, 16), (4, 16, 16), False)],
)  # fmt: skip
def test_shapes_the_gpu_delegate_broadcasts(left, right, yes):
    assert broadcasts(left, right) is yes
    assert broadcasts(right, left) is yes


def test_a_report_counts_every_operator_of_the_longest_entry_point():
    made = sample("bert")
    file = made.reduced("int8") / "model.tflite"
    operators = {len(graph.operators) for graph in read(file).subgraphs}
    for report in delegate_reports(file):
        assert {report.operators} == operators
        assert report.taken + sum(item.count for item in report.refusals) == report.operators
        assert report.source
        assert not report.dynamic_tensors
    by_name = {(report.device, report.delegate): report for report in delegate_reports(file)}
    weights = sum(name == "FULLY_CONNECTED" for name in _names(file))
    refused = {item.operator: item.count for item in by_name["snapdragon-8gen3", "qnn"].refusals}
    assert refused["FULLY_CONNECTED"] == weights
    assert by_name["snapdragon-8gen3", "qnn"].partitions > 1


def test_float_files_are_whole_for_an_npu_with_half_precision():
    (report,) = (
        item
        for item in delegate_reports(sample("bert").fp32 / "model.tflite", ["snapdragon-8gen3"])
        if item.delegate == "qnn"
    )
    assert (report.taken, report.partitions) == (report.operators, 1)


def test_devices_without_delegates_get_no_report():
    assert delegate_reports(sample("bert").fp32 / "model.tflite", ["mobile-cpu", "host"]) == ()


def test_devices_that_share_a_delegate_share_a_line():
    lines = delegate_lines(delegate_reports(sample("bert").fp32 / "model.tflite"))
    assert len(lines) == len({delegate.title for delegates in DELEGATES.values() for delegate in delegates})
    assert any("snapdragon-8gen2, snapdragon-8gen3" in name for name in lines)


def test_every_phone_has_an_entry_that_fits_its_npu():
    phones = {name for name in profile_names() if load_profile(name).kind == "android"}
    assert set(DELEGATES) == phones
    for name in phones:
        hexagon = load_profile(name).hexagon
        if hexagon is not None:
            expected = QNN_FLOAT if "fp16" in hexagon.precisions else QNN_INTEGER if hexagon.precisions else QNN_DSP
            assert expected in DELEGATES[name]


def test_every_rule_speaks_of_an_operator_the_delegate_knows():
    for delegates in DELEGATES.values():
        for delegate in delegates:
            for rule in delegate.rules:
                assert set(rule.operators) <= delegate.operators, rule.reason


def _names(file):
    from export.tflite.flatbuffer import operator_name

    model = read(file)
    return [operator_name(model, operator) for operator in model.subgraphs[-1].operators]
