import pytest

from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json", "labels.txt", "parity.json"])
def test_one_flipped_bit_in_any_file_is_refused(onnx_artifact, name):
    flip_a_bit(onnx_artifact / name)
    with pytest.raises(ArtifactError, match=f"{name} is altered"):
        Artifact.load(onnx_artifact)


def test_a_missing_and_an_added_file_are_refused(onnx_artifact):
    (onnx_artifact / "extra.txt").write_text("x")
    with pytest.raises(ArtifactError, match=r"extra\.txt is unexpected; expected only files that the manifest lists"):
        Artifact.load(onnx_artifact)
    (onnx_artifact / "extra.txt").unlink()
    (onnx_artifact / "labels.txt").unlink()
    with pytest.raises(ArtifactError, match=r"labels\.txt is missing; expected every file that the manifest lists"):
        Artifact.load(onnx_artifact)


def test_a_folder_without_manifest_is_no_artifact(tmp_path):
    with pytest.raises(ArtifactError, match=r"holds no manifest\.json"):
        Artifact.load(tmp_path)


def test_a_manifest_of_another_schema_is_refused(onnx_artifact):
    (onnx_artifact / "manifest.json").write_text('{"schema_version": 99}')
    with pytest.raises(ArtifactError, match=r"manifest\.json cannot be read: schema_version: found 99; expected 1 "):
        Artifact.load(onnx_artifact)
