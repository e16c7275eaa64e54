"""Observed ranges are those of the real tokens, whatever the batch, and bad text is named."""

import logging

import numpy as np
import onnx_ir as ir
import pytest
import torch

from compressor.core.errors import DataError, StageError, UsageError
from compressor.quantize.observers import OBSERVERS
from export.onnx import files
from export.onnx.backend import OnnxBackend
from export.onnx.ranges import collect_ranges
from tests.export.onnx.helpers import Source
from tests.models import SENTENCES


@pytest.fixture(scope="module")
def source(checkpoint_of):
    return Source(checkpoint_of("bert"))


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp32")
    OnnxBackend().convert(source.model, source.spec, folder)
    return folder


@pytest.fixture
def graph(folder):
    return files.load(folder / "model.onnx")


def names_of(graph, part, operator="MatMul"):
    return [node.inputs[0].name for node in graph.graph if part in node.name and node.op_type == operator]


def outputs_of(graph, *operators):
    return [node.outputs[0].name for node in graph.graph if node.op_type in operators]


def change_weight(graph, part, change):
    value = next(v for v in graph.graph.initializers.values() if part in v.name)
    value.const_value = ir.tensor(change(value.const_value.numpy()), name=value.name)


@pytest.mark.parametrize("name", OBSERVERS)
def test_ranges_are_those_that_pytorch_sees_without_padding(source, graph, name):
    tensor, *_ = names_of(graph, "layer.1/output/dense")
    seen = []
    hook = source.model.bert.encoder.layer[1].output.dense.register_forward_pre_hook(lambda _, x: seen.append(x[0]))
    for item in source.calibration().encoder.encode(SENTENCES):
        with torch.no_grad():
            source.model(input_ids=torch.tensor([item.ids]))
    hook.remove()
    values = torch.cat([item.flatten() for item in seen]).numpy()
    before = ir.to_proto(graph).SerializeToString()
    found = collect_ranges(graph, [tensor, tensor], source.calibration(), name)[tensor]
    assert ir.to_proto(graph).SerializeToString() == before
    if name == "minmax":
        assert (found.low, found.high) == pytest.approx((values.min(), values.max()), rel=1e-4)
    assert values.min() - 1e-4 <= found.low < 0 < found.high <= values.max() + 1e-4


def test_reducing_in_the_graph_and_watching_whole_tensors_agree(source, graph):
    tensors = outputs_of(graph, "MatMul", "LayerNormalization")
    inside = collect_ranges(graph, tensors, source.calibration(), "minmax")
    outside = collect_ranges(graph, tensors, source.calibration(), "percentile")
    for name in tensors:
        assert inside[name].low <= outside[name].low and outside[name].high <= inside[name].high


def test_a_graph_of_fixed_length_gets_padded_sentences(source, graph):
    for item in graph.graph.inputs:
        item.shape = ir.Shape([item.shape[0], 48])
    (tensor, *_) = names_of(graph, "layer.0/attention/self/query")
    assert collect_ranges(graph, [tensor], source.calibration())[tensor].high > 0
    for item in graph.graph.inputs:
        item.shape = ir.Shape([item.shape[0], 6])
    with pytest.raises(UsageError, match="takes exactly 6"):
        collect_ranges(graph, [tensor], source.calibration())


def test_no_text_and_ids_beyond_the_vocabulary_are_named(source, graph):
    (tensor, *_) = names_of(graph, "layer.0/attention/self/query")
    with pytest.raises(UsageError, match="no calibration text"):
        collect_ranges(graph, [tensor], source.calibration(()))
    change_weight(graph, "word_embeddings", lambda table: table[:20].copy())
    with pytest.raises(DataError, match="expected ids of this model's own vocabulary"):
        collect_ranges(graph, [tensor], source.calibration())


def test_a_model_that_is_not_finite_is_refused(source, graph):
    change_weight(graph, "query.weight", lambda weight: np.full_like(weight, np.nan))
    tensors = outputs_of(graph, "MatMul")
    for observer in ("minmax", "mse"):
        with pytest.raises(StageError, match="NaN or infinity"):
            collect_ranges(graph, tensors, source.calibration(), observer)


def test_text_the_model_cannot_spell_is_warned_of(source, graph, caplog):
    (tensor, *_) = names_of(graph, "layer.0/attention/self/query")
    with caplog.at_level(logging.WARNING):
        collect_ranges(graph, [tensor], source.calibration(SENTENCES))
        assert not caplog.messages
        collect_ranges(graph, [tensor], source.calibration(("где мой заказ", "верните деньги")))
    assert "unknown to the model" in caplog.text
