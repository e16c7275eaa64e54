"""P08: no constant of an exported graph lies beyond half range, and masking works exactly as before."""

import numpy as np
import onnx
import pytest

from export.onnx.backend import OnnxBackend
from export.onnx.passes.finite_masks import HALF_MAX
from tests.export.onnx.helpers import Source, io_for
from tests.models import FAMILIES


def float_constants(path):
    graph = onnx.load(path).graph
    yield from (onnx.numpy_helper.to_array(item) for item in graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield onnx.numpy_helper.to_array(attribute.t)
            elif attribute.type == onnx.AttributeProto.FLOAT:
                yield np.array(attribute.f)


@pytest.mark.parametrize("family", FAMILIES)
def test_constants_fit_half_and_padding_changes_nothing(checkpoint_of, tmp_path, family):
    source = Source(checkpoint_of(family))
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    floats = [array for array in float_constants(tmp_path / "model.onnx") if array.dtype.kind == "f"]
    assert max(float(np.abs(array).max(initial=0)) for array in floats) <= HALF_MAX
    predictor = OnnxBackend().open(tmp_path, io_for(source.spec), threads=1)
    alone = source.batches()[0]
    padding = [(0, 0), (0, 30)]
    padded = {
        name: np.pad(array, padding, constant_values=source.spec.pad_id if name == "input_ids" else 0)
        for name, array in alone.items()
    }
    garbage = {**padded, "input_ids": np.where(padded["attention_mask"] == 0, 7, padded["input_ids"])}
    for batch in (alone, padded, garbage):
        expected = source.reference(batch)
        np.testing.assert_allclose(predictor.logits(batch), expected, rtol=0, atol=1e-4 * np.ptp(expected))
