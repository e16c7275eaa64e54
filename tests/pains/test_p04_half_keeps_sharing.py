"""P04: the pass to FP16 never gives a shared constant a copy for each of its readers."""

from collections import Counter

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan
from export.onnx.backend import OnnxBackend
from export.onnx.half import to_half
from tests.export.onnx.helpers import Source, add_weight, text_model, write
from tests.models import tiny_checkpoint

GRAPH = """m (float[N,8] x, float[8,8] w) => (float[N,8] y) {
    a = MatMul(x, w)
    b = MatMul(a, w)
    squared = Pow(w, w)
    c = MatMul(b, squared)
    y = MatMul(c, w)
}"""
WEIGHT = np.random.default_rng(1).uniform(0.1, 0.9, (8, 8)).astype(np.float32)


def readers(model):
    """How many inputs read each stored tensor, casts behind it looked through; the counts, sorted."""
    stored = {item.name for item in model.graph.initializer if np.prod(item.dims) > 1}
    behind = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Cast"}
    found = Counter()
    for node in model.graph.node:
        if node.op_type != "Cast":
            found.update({behind.get(name, name) for name in node.input} & stored)
    return sorted(found.values())


def test_a_constant_that_half_and_full_nodes_read_is_stored_once(tmp_path):
    model = text_model(GRAPH)
    add_weight(model, "w", WEIGHT)
    before = readers(onnx.load(write(model, tmp_path / "full.onnx")))
    to_half(model)
    made = onnx.load(write(model, tmp_path / "half.onnx"))
    (weight,) = [item for item in made.graph.initializer if np.prod(item.dims) > 1]
    assert weight.data_type == onnx.TensorProto.FLOAT16
    assert readers(made) == before == [4]
    casts = [node for node in made.graph.node if node.op_type == "Cast" and node.input[0] == weight.name]
    assert len(casts) == 1, "one cast serves every reader in FP32"


def test_a_pass_that_copies_is_caught(tmp_path, monkeypatch):
    """What the vendor's caster does: a copy for each reader, so that each can have a precision of its own."""

    def copying(self):
        (value,) = [it for it in self._graph.initializers.values() if it.const_value.size > 1]
        for number, use in enumerate(list(value.uses())[1:]):
            twin = ir.Value(name=f"w_{number}", const_value=value.const_value, type=value.type, shape=value.shape)
            self._graph.register_initializer(twin)
            use.node.replace_input_with(use.idx, twin)

    monkeypatch.setattr("export.onnx.half._Caster.run", copying)
    model = text_model(GRAPH)
    add_weight(model, "w", WEIGHT)
    with pytest.raises(StageError, match=r"stores \d weights; expected 1 as in FP32"):
        to_half(model)


@pytest.mark.parametrize("calibrated", [False, True])
def test_albert_is_read_as_often_as_before_and_stored_in_half_the_bytes(tmp_path, calibrated):
    source = Source(tiny_checkpoint("albert", tmp_path / "albert", layers=4))
    full, half = tmp_path / "full", tmp_path / "half"
    full.mkdir()
    half.mkdir()
    backend = OnnxBackend()
    backend.convert(source.model, source.spec, full)
    backend.reduce(full, half, "fp16", QuantizationPlan.uniform("fp16"), source.calibration() if calibrated else None)
    before, after = (onnx.load(folder / "model.onnx") for folder in (full, half))
    assert len(after.graph.initializer) == len(before.graph.initializer)
    assert readers(after) == readers(before)
    assert max(readers(after)) >= 4, "each layer reads the one stored weight"
    counted = [backend.inspect(folder / "model.onnx") for folder in (full, half)]
    assert counted[0].parameters == counted[1].parameters
    assert counted[1].unique_parameter_bytes <= 0.51 * counted[0].unique_parameter_bytes
