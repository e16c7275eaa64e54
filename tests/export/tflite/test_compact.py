import flatbuffers
import numpy as np
import pytest

from compressor.core.errors import ModelError
from export.tflite.compact import compact
from export.tflite.flatbuffer import IDENTIFIER, parse, read
from tests.export.tflite.samples import BACKEND, open_folder, sample


def plain(path) -> bytes:
    """The same file as the schema's own packer writes it: nothing shared, every tensor named."""
    model = read(path)
    for graph in model.subgraphs:
        for index, tensor in enumerate(graph.tensors):
            tensor.name = tensor.name or f"some/long/name/of/a/module/{index}"
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def outputs(content: bytes, folder, made) -> list[np.ndarray]:
    folder.mkdir()
    (folder / "model.tflite").write_bytes(content)
    predictor = open_folder(folder, made.spec)
    return [predictor.logits(batch) for batch in made.batches()]


@pytest.fixture(scope="module")
def traced() -> bytes:
    return sample("bert").traced


def test_the_converters_file_shrinks_and_computes_the_same_to_the_bit(traced, tmp_path):
    small = compact(parse(traced))
    assert len(small) < 0.6 * len(traced)
    made = sample("bert")
    for before, after in zip(outputs(traced, tmp_path / "a", made), outputs(small, tmp_path / "b", made), strict=True):
        np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_reduced_file_computes_the_same_to_the_bit(precision, tmp_path):
    made = sample("bert")
    file = made.reduced(precision) / "model.tflite"
    loose = plain(file)
    assert file.stat().st_size < len(loose)
    for before, after in zip(
        outputs(loose, tmp_path / "a", made), outputs(file.read_bytes(), tmp_path / "b", made), strict=True
    ):
        np.testing.assert_array_equal(before, after)


def test_compacting_twice_changes_nothing(traced):
    once = compact(parse(traced))
    assert compact(parse(once)) == once


def test_a_second_length_costs_little(tmp_path):
    """Names, tables and options of the second length are the first one's; what is left is shapes and positions."""
    made = sample("bert")
    for precision in ("fp32", "int8"):
        file = made.reduced(precision) / "model.tflite" if precision != "fp32" else made.fp32 / "model.tflite"
        model = read(file)
        model.subgraphs, model.signatureDefs = model.subgraphs[1:], model.signatureDefs[1:]
        model.signatureDefs[0].subgraphIndex = 0
        one = len(compact(model))
        two = len(compact(read(file)))
        assert two - one < 0.35 * (len(plain(file)) - len(compact(read(file))))


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_weights_start_at_multiples_of_16_bytes(precision):
    made = sample("bert")
    content = ((made.fp32 if precision == "fp32" else made.reduced(precision)) / "model.tflite").read_bytes()
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(content, 0)
    whole = np.frombuffer(content, dtype=np.uint8)
    for index in range(model.BuffersLength()):
        buffer = model.Buffers(index)
        if buffer.DataLength():
            start = buffer.DataAsNumpy().__array_interface__["data"][0] - whole.__array_interface__["data"][0]
            assert start % 16 == 0


def folder_of(precision):
    return sample("bert").fp32 if precision == "fp32" else sample("bert").reduced(precision)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_only_names_of_inputs_and_outputs_are_left(precision):
    traced, model = parse(sample("bert").traced), read(folder_of(precision) / "model.tflite")
    for original, graph in zip(traced.subgraphs, model.subgraphs, strict=True):
        visible = {*graph.inputs, *graph.outputs}
        assert all((tensor.name is not None) == (index in visible) for index, tensor in enumerate(graph.tensors))
        for wanted, found in ((original.inputs, graph.inputs), (original.outputs, graph.outputs)):
            assert [graph.tensors[i].name for i in found] == [original.tensors[i].name for i in wanted]
    assert [signature.key for signature in BACKEND.signatures(folder_of(precision))] == ["seq_8", "seq_16"]


def test_weights_beyond_a_flatbuffer_are_a_named_error(monkeypatch):
    monkeypatch.setattr("export.tflite.compact._MAX_BYTES", 10_000)
    with pytest.raises(ModelError, match="do not fit one TFLite file") as error:
        compact(read(sample("bert").fp32 / "model.tflite"))
    assert "onnx" in error.value.remedy
