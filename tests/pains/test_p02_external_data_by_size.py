"""P02: a shared-weight model must not cross protobuf's 2 GB limit because of copies, nor be split by a flag."""

import numpy as np
import onnx
import pytest

from compressor.quantize.plan import QuantizationPlan
from export.onnx import files
from export.onnx.backend import OnnxBackend
from tests.export.onnx.helpers import Source, io_for


@pytest.fixture
def albert(checkpoint_of):
    return Source(checkpoint_of("albert"))


def unique_bytes(model):
    return sum(parameter.nbytes for parameter in model.parameters())


def test_copies_of_a_shared_layer_never_reach_the_file(albert, tmp_path, monkeypatch):
    """The limit lies between the model stored once and its layers stored as often as they are applied."""
    monkeypatch.setattr(files, "MAX_EMBEDDED_BYTES", int(1.1 * unique_bytes(albert.model)))
    OnnxBackend().convert(albert.model, albert.spec, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_above_the_limit_weights_lie_beside_the_graph_and_children_follow_their_own_size(
    albert, tmp_path, monkeypatch, precision
):
    source, child = tmp_path / "fp32", tmp_path / precision
    source.mkdir()
    child.mkdir()
    monkeypatch.setattr(files, "MAX_EMBEDDED_BYTES", int(0.9 * unique_bytes(albert.model)))
    OnnxBackend().convert(albert.model, albert.spec, source)
    assert sorted(path.name for path in source.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert all(onnx.external_data_helper.uses_external_data(item) or item.ByteSize() < 4096
               for item in onnx.load(source / "model.onnx", load_external_data=False).graph.initializer)  # fmt: skip
    assert albert.relative_error(OnnxBackend().open(source, io_for(albert.spec), threads=1)) <= 1e-4
    OnnxBackend().reduce(source, child, precision, QuantizationPlan())
    assert [path.name for path in child.iterdir()] == ["model.onnx"]
    for path in source.iterdir():
        path.unlink()
    logits = OnnxBackend().open(child, io_for(albert.spec), threads=1).logits(albert.batches()[0])
    assert np.isfinite(logits).all()
