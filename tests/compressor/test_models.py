"""What is refused when a checkpoint is loaded, and what may be made anew."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from compressor.core.errors import ModelError
from compressor.models import load_compressed, resolve
from compressor.text import SentenceEncoder
from tests.models import FAMILIES, tiny_checkpoint

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 90868376\n"


def edited(folder: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Path:
    """Rewrites the weights of the checkpoint in ``folder``."""
    file = folder / "model.safetensors"
    save_file(change(load_file(file)), file, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_head_and_pooler_may_be_missing_or_of_another_size(family: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(family, tmp_path).path
    assert load_compressed(folder, num_labels=7).config.num_labels == 7
    base = load_compressed(folder).base_model_prefix

    def body(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: weights[name] for name in weights if name.startswith(f"{base}.") and ".pooler." not in name}

    edited(folder, body)
    assert load_compressed(folder, num_labels=3).config.num_labels == 3
    with pytest.raises(ModelError, match="expected a trained classifier"):
        load_compressed(folder)


@pytest.mark.parametrize("num_labels", [None, 7])
def test_names_of_another_prefix_do_not_pass_for_a_fresh_model(num_labels: int | None, tmp_path: Path) -> None:
    folder = edited(
        tiny_checkpoint("bert", tmp_path).path,
        lambda weights: {f"student.{name}": tensor for name, tensor in weights.items()},
    )
    with pytest.raises(ModelError, match=r"no fitting weights for bert\.embeddings"):
        load_compressed(folder, num_labels=num_labels)


@pytest.mark.parametrize("name", ["bert.embeddings.word_embeddings.weight", "bert.encoder.layer.1.output.dense.bias"])
def test_an_encoder_tensor_that_is_missing_or_of_another_shape_is_refused(name: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint("bert", tmp_path).path
    edited(folder, lambda weights: {**weights, name: weights[name][:-1].clone()})
    with pytest.raises(ModelError, match=rf"no fitting weights for {name} \(1 tensors\)"):
        load_compressed(folder, num_labels=7)
    edited(folder, lambda weights: {other: weights[other] for other in weights if other != name})
    with pytest.raises(ModelError, match=rf"no fitting weights for {name}"):
        load_compressed(folder, num_labels=7)


@pytest.mark.parametrize("damage", [lambda whole: whole[: len(whole) // 2], lambda whole: POINTER, lambda whole: b""])
def test_damaged_weights_are_a_model_error(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    folder = tiny_checkpoint("bert", tmp_path).path
    file = folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ModelError, match="damaged weight file") as error:
        load_compressed(folder)
    assert "git lfs pull" in error.value.remedy


@pytest.mark.parametrize("name", ["my--model", "a..b", "model.git"])
def test_a_name_no_hub_id_may_have_is_a_model_error(name: str) -> None:
    with pytest.raises(ModelError, match="could not be fetched"):
        resolve(name)


@pytest.mark.parametrize("text", ["", "{", "{}", json.dumps({"version": "1.0", "model": {"type": "Unknown"}})])
def test_a_damaged_tokenizer_is_a_model_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match="not a readable tokenizer"):
        SentenceEncoder.load(tmp_path, max_tokens=8)
