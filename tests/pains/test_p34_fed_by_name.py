"""P34: the order of the inputs, in the feed or in the graph, changes nothing."""

import numpy as np
import onnx

from compressor.core.artifact import Artifact
from export.build import export_artifacts
from export.onnx.backend import OnnxBackend
from export.source import ExportRequest
from export.text_predictor import TextPredictor
from tests.export.onnx.helpers import Source, io_for
from tests.models import PAIRS, tiny_task_checkpoint


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
    assert [item.name for item in OnnxBackend().signatures(flipped)[0].inputs] == [item.name for item in inputs]
    for folder in (tmp_path, flipped):
        found = OnnxBackend().open(folder, io_for(source.spec), threads=1).logits(permuted)
        np.testing.assert_array_equal(found, expected)


def test_several_outputs_are_read_by_name_whatever_their_order(tmp_path):
    made = tiny_task_checkpoint("question-answering", tmp_path / "model")
    request = ExportRequest(
        formats=("onnx",), precisions=("fp32",), lengths=(16,), parity_texts=PAIRS, parity_source="test", name="qa"
    )
    (artifact,) = export_artifacts(made, request, tmp_path / "out").artifacts
    expected = TextPredictor.load(artifact).run(PAIRS)
    model = onnx.load(artifact.model_path)
    outputs = list(model.graph.output)[::-1]
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    onnx.save(model, artifact.model_path)
    found = TextPredictor.load(Artifact.load(artifact.path, verify=False)).run(PAIRS)
    for name in ("start_logits", "end_logits"):
        for ours, theirs in zip(found.rows[name], expected.rows[name], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert not np.array_equal(found.rows["start_logits"][0], found.rows["end_logits"][0])
