import numpy as np
import pytest

from compressor.core.artifact import ModelStatistics
from compressor.core.errors import ArtifactError
from export.tflite.compact import compact
from export.tflite.flatbuffer import read, type_names, weight_uses
from tests.export.tflite.samples import BACKEND, sample


def test_statistics_are_those_of_the_model():
    made = sample("bert")
    found = BACKEND.inspect(made.fp32 / "model.tflite")
    assert isinstance(found, ModelStatistics)
    assert found.format == "tflite"
    assert found.size_bytes == (made.fp32 / "model.tflite").stat().st_size
    # query, key, value, attention output, two of the FFN, pooler, classifier; at two lengths
    assert found.gemm_types == {"fp32": 16}
    assert found.operators["FULLY_CONNECTED"] == 16
    assert found.operators["SOFTMAX"] == 2
    assert "GATHER_ND" not in found.operators
    table = made.model.bert.embeddings.position_embeddings.weight
    # Each length keeps the rows of the position table that it needs.
    rows = sum(made.spec.lengths) * table.shape[1]
    expected = sum(parameter.numel() for parameter in made.model.parameters()) - table.numel() + rows
    assert found.parameters == pytest.approx(expected, rel=0.01)
    assert found.unique_parameter_bytes == pytest.approx(4 * found.parameters, rel=0.01)
    assert found.unique_parameter_bytes < found.size_bytes


def test_token_types_are_taken_only_where_the_family_has_them():
    inputs = {f: [spec.name for spec in BACKEND.signatures(sample(f).fp32)[0].inputs] for f in ("bert", "distilbert")}
    assert inputs["bert"] == ["input_ids", "attention_mask", "token_type_ids"]
    assert inputs["distilbert"] == ["input_ids", "attention_mask"]


def test_weight_only_int8_computes_in_fp32(tmp_path):
    """An int8 constant behind a DEQUANTIZE saves storage; the product itself is one of floats."""
    model = read(sample("bert").reduced("fp16") / "model.tflite")
    int8 = next(code for code, name in type_names().items() if name == "int8")
    narrow = {int(use.tensor.buffer): use for use in weight_uses(model)}
    for buffer, use in narrow.items():
        model.buffers[buffer].data = np.ones(use.elements, np.uint8)
    for use in weight_uses(model):
        use.tensor.type = int8
    (tmp_path / "model.tflite").write_bytes(compact(model))
    found = BACKEND.inspect(tmp_path / "model.tflite")
    assert set(found.gemm_types) == {"fp32"}
    assert found.precision == "mixed"


def damaged(content: bytes) -> dict[str, bytes]:
    return {
        "empty": b"",
        "text": b"this is not a model at all",
        "onnx": b"\x08\x07\x12\x07pytorch" + bytes(64),
        "cut": content[: len(content) // 3],
        "header": content[:64],
        "root": b"\xff\xff\xff\x7f" + content[4:],
    }


@pytest.mark.parametrize("damage", ["empty", "text", "onnx", "cut", "header", "root"])
def test_a_damaged_file_is_an_artifact_error(damage, tmp_path):
    file = tmp_path / "model.tflite"
    file.write_bytes(damaged((sample("bert").fp32 / "model.tflite").read_bytes())[damage])
    with pytest.raises(ArtifactError):
        BACKEND.inspect(file)
    with pytest.raises(ArtifactError):
        BACKEND.signatures(tmp_path)


def test_a_missing_file_is_an_artifact_error(tmp_path):
    with pytest.raises(ArtifactError, match="cannot be read"):
        BACKEND.inspect(tmp_path / "none.tflite")
