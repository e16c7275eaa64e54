"""P33: the opset is what the file says, and a file that says another one than was asked for is refused."""

import pytest

from compressor.core.errors import ArtifactError, StageError
from export.onnx import files
from export.onnx.backend import OPSET, OnnxBackend
from export.tensorrt.backend import OPSET as TENSORRT_OPSET
from export.tensorrt.backend import TensorRTBackend
from tests.export.onnx.helpers import Source, text_model, write

RELU = "m (float[N] x) => (float[N] y) { y = Relu(x) }"


@pytest.mark.parametrize(("backend", "opset"), [(OnnxBackend(), OPSET), (TensorRTBackend(), TENSORRT_OPSET)])
def test_the_file_states_the_opset_of_its_format(checkpoint_of, tmp_path, backend, opset):
    source = Source(checkpoint_of("bert"))
    backend.convert(source.model, source.spec, tmp_path)
    assert backend.inspect(tmp_path / "model.onnx").opset == opset


def test_inspect_reads_any_opset(tmp_path):
    assert OnnxBackend().inspect(write(text_model(RELU, opset=14), tmp_path / "m.onnx")).opset == 14


def test_another_opset_than_asked_for_is_refused(tmp_path):
    path = write(text_model(RELU, opset=18), tmp_path / "m.onnx")
    files.check(path, opset=18)
    with pytest.raises(StageError, match="states opset 18; expected 17"):
        files.check(path, opset=17)


def test_a_file_without_the_standard_operators_is_refused():
    model = text_model(RELU)
    del model.graph.opset_imports[""]
    with pytest.raises(ArtifactError, match="no standard operator set"):
        files.opset_of(model)
