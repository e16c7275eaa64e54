import pytest

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError


def test_a_folder_that_is_no_model(tmp_path):
    with pytest.raises(ModelError, match=r"no config\.json"):
        Checkpoint.open(tmp_path)
    with pytest.raises(ModelError, match="does not exist"):
        Checkpoint.open(tmp_path / "none")


def test_pickled_weights_are_refused_and_not_read(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(ModelError, match="only pickled weights") as caught:
        Checkpoint.open(tmp_path)
    assert "safe_serialization" in caught.value.remedy


def test_the_hash_follows_the_content_and_not_the_marker(checkpoint_of, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(checkpoint_of("bert").path, copy)
    assert Checkpoint.open(copy).hash == checkpoint_of("bert").hash
    (copy / ".compressor.json").write_text("{}")
    assert Checkpoint.open(copy).hash == checkpoint_of("bert").hash
    (copy / "config.json").write_text("{}")
    assert Checkpoint.open(copy).hash != checkpoint_of("bert").hash


def test_labels_come_in_the_order_of_the_logits(checkpoint_of):
    assert checkpoint_of("bert").labels == ("cancel", "refund", "track")
