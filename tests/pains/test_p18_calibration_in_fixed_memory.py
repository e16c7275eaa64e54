"""P18: calibration takes ragged text, and as much memory for many sentences as for few."""

import tracemalloc

import pytest

from export.onnx import files
from export.onnx.backend import OnnxBackend
from export.onnx.ranges import collect_ranges
from tests.export.onnx.helpers import Source
from tests.models import SENTENCES


@pytest.mark.parametrize("observer", ["minmax", "auto"])
def test_peak_memory_does_not_grow_with_the_text(checkpoint_of, tmp_path, observer):
    source = Source(checkpoint_of("bert"))
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    model = files.load(tmp_path / "model.onnx")
    tensors = [str(node.outputs[0].name) for node in model.graph if node.op_type == "MatMul"][:6]
    peaks = []
    for repeats in (2, 2, 24):  # the first is a warm-up
        calibration = source.calibration(SENTENCES * repeats)
        tracemalloc.start()
        found = collect_ranges(model, tensors, calibration, observer)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert set(found) == set(tensors)
    assert peaks[2] <= 1.02 * peaks[1] + 50_000
