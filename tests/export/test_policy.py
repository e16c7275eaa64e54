"""A plan means the same in every format: the same modules can be named, and rules store the same."""

import onnx_ir as ir
import pytest

from compressor.core.errors import UsageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.onnx import files
from export.onnx.backend import OnnxBackend
from export.onnx.policy import module_paths
from export.policy import check_policy, require_reduction, stored_precision
from export.tflite.flatbuffer import read, type_names, weight_uses
from export.tflite.modules import load_modules
from tests.export.tflite.samples import sample

PATHS = ("bert.encoder.layer.0.output.dense", "bert.pooler.dense", "classifier")


def plan(**rules):
    return QuantizationPlan(policy=tuple(Rule(pattern=p.replace("__", "."), precision=v) for p, v in rules.items()))


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [("bert.pooler.dens", "'bert.pooler.dense'"), ("bert.pooler", r"'bert.pooler.\*'"), ("clasifier", "'classifier'")],
)
def test_a_pattern_without_a_module_names_the_nearest(pattern, remedy):
    with pytest.raises(UsageError, match=rf"matches no module with weights.*did you mean {remedy}"):
        check_policy(QuantizationPlan(policy=(Rule(pattern=pattern, precision="fp32"),)), PATHS)


def test_patterns_that_reach_a_module_pass():
    check_policy(plan(**{"*": "int8", "bert.pooler.*": "fp32", "classifier": "fp16"}), PATHS)


def test_rules_say_how_a_module_is_stored():
    rules = plan(**{"bert.*": "int8", "bert.pooler.dense": "fp16"})
    assert [stored_precision(rules, path, "int8") for path in PATHS] == ["int8", "fp16", "fp32"]
    assert [stored_precision(rules, path, "fp16") for path in PATHS] == ["fp16", "fp16", "fp32"]


def test_a_plan_that_reduces_nothing_is_refused():
    require_reduction(["fp32", "fp16"], "fp16")
    with pytest.raises(UsageError, match="nothing to store as int8"):
        require_reduction(["fp32"], "int8")


@pytest.fixture(scope="module")
def onnx_of(tmp_path_factory):
    def convert(family):
        made, folder = sample(family, 2 if family == "albert" else 1), tmp_path_factory.mktemp(family)
        OnnxBackend().convert(made.model, made.spec, folder)
        return made, folder

    return convert


@pytest.mark.parametrize("family", ["bert", "albert", "deberta-v2"])
def test_both_formats_know_the_same_modules(onnx_of, family):
    made, folder = onnx_of(family)
    assert module_paths(files.load(folder / "model.onnx")) == {*load_modules(read(made.fp32 / "model.tflite")).modules}


def test_a_mixed_plan_stores_the_same_in_both_formats(onnx_of, tmp_path):
    mixed = plan(**{"*": "int8", "bert.encoder.layer.0.attention.*": "fp16", "classifier": "fp32"})
    made, folder = onnx_of("bert")
    OnnxBackend().reduce(folder, tmp_path, "int8", mixed)
    graph = files.load(tmp_path / "model.onnx").graph
    matrices = [
        v.const_value
        for v in graph.initializers.values()
        if v.const_value and len(v.const_value.shape) == 2 and v.const_value.shape[1] > 1
    ]
    converted = read(made.reduced("int8", tmp_path / "tflite", mixed) / "model.tflite")
    tables = {use.buffer: type_names()[use.tensor.type] for use in weight_uses(converted)}
    for dtype, name, count in ((ir.DataType.FLOAT16, "float16", 4), (ir.DataType.FLOAT, "float32", 1)):
        assert sum(tensor.dtype is dtype for tensor in matrices) == count
        assert list(tables.values()).count(name) == count
