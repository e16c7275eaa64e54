"""Files written and read around protobuf are the files that protobuf writes and reads."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from export.onnx import files, wire
from tests.export.onnx.helpers import add_weight, text_model, write

TEXT = """m (float[N,128] x, float[128,64] big, float[64] small, float[64,128] back) => (float[N,128] y) {
    a = MatMul(x, big)  b = Add(a, small)  y = MatMul(b, back)
}"""
RANDOM = np.random.default_rng(3)
BIG = RANDOM.standard_normal((128, 64)).astype(np.float32)
SMALL = RANDOM.standard_normal(64).astype(np.float32)


def model():
    made = text_model(TEXT)
    add_weight(made, "big", BIG)
    add_weight(made, "small", SMALL)
    add_weight(made, "back", BIG.T)
    made.metadata_props["key"] = "value"
    return made


def test_protobuf_reads_what_was_written(tmp_path):
    wire.write(model(), tmp_path / "m.onnx")
    onnx.checker.check_model(str(tmp_path / "m.onnx"), full_check=True)
    found = onnx.load(tmp_path / "m.onnx")
    weights = {item.name: onnx.numpy_helper.to_array(item) for item in found.graph.initializer}
    np.testing.assert_array_equal(weights["big"], BIG)
    np.testing.assert_array_equal(weights["small"], SMALL)
    np.testing.assert_array_equal(weights["back"], BIG.T)
    assert [node.op_type for node in found.graph.node] == ["MatMul", "Add", "MatMul"]
    assert {item.key: item.value for item in found.metadata_props} == {"key": "value"}


def test_writing_leaves_the_model_as_it_was(tmp_path):
    made = model()
    before = {name: value.const_value for name, value in made.graph.initializers.items()}
    wire.write(made, tmp_path / "m.onnx")
    assert {name: value.const_value for name, value in made.graph.initializers.items()} == before


def test_what_protobuf_wrote_is_read_with_large_weights_left_in_the_file(tmp_path):
    ir.save(model(), tmp_path / "m.onnx")
    found = wire.read(tmp_path / "m.onnx")
    tensors = {name: value.const_value for name, value in found.graph.initializers.items()}
    assert isinstance(tensors["big"], ir.LazyTensor)
    assert not isinstance(tensors["small"], ir.LazyTensor)
    np.testing.assert_array_equal(tensors["big"].numpy(), BIG)
    np.testing.assert_array_equal(tensors["small"].numpy(), SMALL)


def test_a_model_outlives_the_file_it_was_read_from(tmp_path):
    path = write(model(), tmp_path / "m.onnx")
    found = files.load(path)
    path.unlink()
    np.testing.assert_array_equal(found.graph.initializers["big"].const_value.numpy(), BIG)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_file_cut_anywhere_is_refused(tmp_path, cut):
    path = write(model(), tmp_path / "m.onnx")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * cut // 12])
    with pytest.raises(ValueError, match=r"cut short|no field"):
        wire.read(path)


def test_external_data_is_named_without_reading_it(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_EMBEDDED_BYTES", 1000)
    files.save(model(), tmp_path / "m.onnx")
    assert [path.name for path in files.model_files(tmp_path / "m.onnx")] == ["m.onnx", "m.onnx.data"]
    np.testing.assert_array_equal(files.load(tmp_path / "m.onnx").graph.initializers["big"].const_value.numpy(), BIG)
    embedded = files.load(tmp_path / "m.onnx")
    monkeypatch.undo()
    files.save(embedded, tmp_path / "one.onnx")
    assert [path.name for path in files.model_files(tmp_path / "one.onnx")] == ["one.onnx"]


def test_external_data_cut_short_is_refused(tmp_path, monkeypatch):
    from compressor.core.errors import ArtifactError

    monkeypatch.setattr(files, "MAX_EMBEDDED_BYTES", 1000)
    files.save(model(), tmp_path / "m.onnx")
    data = tmp_path / "m.onnx.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match="cut short"):
        files.load(tmp_path / "m.onnx")


def test_a_model_may_replace_the_file_its_weights_are_mapped_from(tmp_path):
    path = write(model(), tmp_path / "m.onnx")
    mapped = wire.read(path)
    mapped.producer_name = "a longer name, so that every offset moves"
    wire.write(mapped, path)
    np.testing.assert_array_equal(wire.read(path).graph.initializers["big"].const_value.numpy(), BIG)
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]
