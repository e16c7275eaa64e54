"""P01: ALBERT's one layer is stored once in every precision, however often it is applied."""

import onnx
import pytest
from torch import nn

from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan, Rule
from export.onnx.backend import OnnxBackend
from tests.export.onnx.helpers import Source
from tests.models import tiny_checkpoint


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same ALBERT applied 2 and 6 times, in every precision."""
    made = {}
    for depth in (2, 6):
        source = Source(tiny_checkpoint("albert", tmp_path_factory.mktemp("albert"), layers=depth))
        fp32 = tmp_path_factory.mktemp("fp32")
        OnnxBackend().convert(source.model, source.spec, fp32)
        made[depth, "fp32"] = fp32
        for precision in ("fp16", "int8"):
            made[depth, precision] = tmp_path_factory.mktemp(precision)
            OnnxBackend().reduce(fp32, made[depth, precision], precision, QuantizationPlan())
    return made


def stored_bytes(path):
    """Bytes of every initializer as the file holds it, equal ones counted each time."""
    return sum(onnx.numpy_helper.to_array(item).nbytes for item in onnx.load(path).graph.initializer)


def unshare(source, target):
    """Writes the graph with a copy of a weight for each of its readers, as an exporter without deduplication would."""
    model = onnx.load(source)
    stored = {item.name: item for item in model.graph.initializer}
    readers = set()
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name in stored and name in readers:
                copy = onnx.TensorProto()
                copy.CopyFrom(stored[name])
                copy.name = node.input[index] = f"{name}/{node.name}"
                model.graph.initializer.append(copy)
            readers.add(name)
    onnx.save(model, target)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_depth_adds_no_weights(folders, precision):
    paths = [folders[depth, precision] / "model.onnx" for depth in (2, 6)]
    shallow, deep = (OnnxBackend().inspect(path) for path in paths)
    assert stored_bytes(paths[1]) == stored_bytes(paths[0])
    assert sum(deep.gemm_types.values()) > sum(shallow.gemm_types.values())


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_lost_sharing_would_show(folders, tmp_path, precision):
    """Parameters are counted by content, so they hide copies; stored bytes do not."""
    shared, copied = folders[6, precision] / "model.onnx", tmp_path / "model.onnx"
    unshare(shared, copied)
    assert OnnxBackend().inspect(copied).parameters == OnnxBackend().inspect(shared).parameters
    assert stored_bytes(copied) > 2 * stored_bytes(shared)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_every_application_reads_the_one_stored_weight(folders, precision):
    graph = onnx.load(folders[6, precision] / "model.onnx").graph
    stored = {item.name for item in graph.initializer}
    operator = "MatMulInteger" if precision == "int8" else "MatMul"
    queries = [n for n in graph.node if n.op_type == operator and "/attention/query/" in n.name]
    assert len(queries) == 6
    assert len({node.input[1] for node in queries} & stored) == 1


def test_int8_quantizes_every_product_with_a_weight(folders):
    found = OnnxBackend().inspect(folders[6, "int8"] / "model.onnx")
    assert found.precision == "int8"
    assert found.gemm_types["fp32"] == 2 * 6  # scores and context: products of two activations
    assert found.gemm_types["int8"] == 6 * 6 + 3  # six linear maps a layer; projection, pooler, classifier


def test_a_policy_for_the_shared_layer_reaches_every_application(folders, tmp_path):
    path = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query"
    policy = (Rule(pattern="*", precision="int8"), Rule(pattern=path, precision="fp32"))
    OnnxBackend().reduce(folders[6, "fp32"], tmp_path, "int8", QuantizationPlan(policy=policy))
    before, after = (OnnxBackend().inspect(f / "model.onnx") for f in (folders[6, "int8"], tmp_path))
    assert after.gemm_types["int8"] == before.gemm_types["int8"] - 6
    assert after.parameters <= before.parameters


def test_a_file_larger_than_its_unique_parameters_is_refused(folders, checkpoint_of, tmp_path, monkeypatch):
    source = Source(checkpoint_of("albert"))
    model = source.model

    def copy_everything(graph):
        """What an exporter without deduplication would leave: each reader its own copy."""
        for value in list(graph.graph.initializers.values()):
            for use in list(value.uses())[1:]:
                twin = type(value)(name=f"{value.name}_{use.node.name}", const_value=value.const_value)
                graph.graph.register_initializer(twin)
                use.node.replace_input_with(use.idx, twin)

    monkeypatch.setattr("export.onnx.build.clean", copy_everything)
    monkeypatch.setattr("export.onnx.build._GRAPH_BYTES_A_NODE", 0)
    assert isinstance(model, nn.Module)
    with pytest.raises(StageError, match="stored more than once"):
        OnnxBackend().convert(model, source.spec, tmp_path)
