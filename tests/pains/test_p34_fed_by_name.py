"""P34: the order of the inputs, in the feed or in the graph, changes nothing."""

import numpy as np
import onnx

from export.onnx.backend import OnnxBackend
from tests.export.onnx.helpers import Source, io_for


def test_permuted_feed_and_permuted_graph_give_the_same_answer(checkpoint_of, tmp_path):
    source = Source(checkpoint_of("bert"))
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    batch = source.batches()[2]
    expected = OnnxBackend().open(tmp_path, io_for(source.spec), threads=1).logits(batch)
    permuted = dict(reversed(batch.items()))
    assert list(permuted) != list(batch)
    flipped = tmp_path / "flipped"
    flipped.mkdir()
    model = onnx.load(tmp_path / "model.onnx")
    inputs = list(model.graph.input)[::-1]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    onnx.save(model, flipped / "model.onnx")
    for folder in (tmp_path, flipped):
        found = OnnxBackend().open(folder, io_for(source.spec), threads=1).logits(permuted)
        np.testing.assert_array_equal(found, expected)
