"""P29: an unevenly pruned checkpoint loads again with one call, to the very same logits, or says what is wrong."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.core.folders import write_json
from compressor.families import adapter_for
from compressor.models import load_compressed, save_checkpoint
from compressor.prune.surgery import keep_heads, keep_neurons
from compressor.shapes import replace_word_embedding, shape_of
from compressor.share.embedding import factorized
from tests.models import FAMILIES, tiny_checkpoint
from tests.shrunk import reloaded_alike


def uneven(source, output, *, share=False):
    """Cuts another number of heads and neurons out of every stored layer, thins the embeddings, perhaps shares."""
    model = load_compressed(source)
    adapter = adapter_for(model.config)
    size = shape_of(model).head_size
    for place, layer in enumerate(adapter.stored_layers(model).values()):
        keep_heads(adapter, layer, range(place % 2, 3), head_size=size)
        for number, (wide, narrow) in enumerate(adapter.feed_forwards(layer)):
            keep_neurons(wide, narrow, range(3, 50 - 7 * place - number))
    if share and not adapter.shares_layers:
        layers = adapter.encoder_layers(model)
        layers[2] = layers[0]
    table, _ = factorized(adapter.word_embedding(model), 5)
    replace_word_embedding(adapter, model, table)
    save_checkpoint(model, source.path, output)
    return model, Checkpoint.open(output)


@pytest.mark.parametrize("family", FAMILIES)
def test_uneven_shared_and_factorised_models_reload_to_the_same_bits(family, tmp_path):
    source = tiny_checkpoint(family, tmp_path / "source", layers=3)
    model, made = uneven(source, tmp_path / "made", share=True)
    assert shape_of(load_compressed(made.path)) == shape_of(model)
    assert reloaded_alike(model, made)
    again = load_compressed(made.path)
    save_checkpoint(again, made.path, tmp_path / "again")
    assert (tmp_path / "again/model.safetensors").read_bytes() == (made.path / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pruned")
    return uneven(tiny_checkpoint("bert", folder / "source"), folder / "made")[1]


@pytest.fixture
def copied(pruned, tmp_path):
    return shutil.copytree(pruned.path, tmp_path / "made")


def edited(folder, **changes):
    record = json.loads((folder / "compression.json").read_text())
    record["shape"].update(changes)
    write_json(folder / "compression.json", record)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [{"heads": 3, "ffn": [47]}, {"heads": 3, "ffn": [40]}]}, "compression.json and config say"),
        ({"layers": [{"heads": 3, "ffn": [46]}, {"heads": 2, "ffn": [40]}]}, "compression.json and config say"),
        ({"layers": [{"heads": 3, "ffn": [47]}]}, "states 1 layers; config.json makes 2"),
        ({"groups": [0, 0]}, "compression.json"),
        ({"groups": [0, 7]}, "compression.json"),
        ({"embedding_rank": None}, "compression.json"),
        ({"embedding_rank": 6}, "compression.json and config say"),
        ({"head_size": 0}, "no readable shape"),
        ({"layers": [{"heads": 3, "ffn": []}, {"heads": 2, "ffn": []}]}, "feed-forward networks"),
    ],
)
def test_a_record_that_disagrees_with_the_weights_is_an_error(changes, message, copied):
    edited(copied, **changes)
    with pytest.raises(ModelError, match=message):
        load_compressed(copied)


def test_a_lost_record_is_an_error(copied):
    (copied / "compression.json").unlink()
    with pytest.raises(ModelError):
        load_compressed(copied)


def test_lost_and_stray_weights_are_errors(copied):
    file = copied / "model.safetensors"
    weights = load_file(file)
    name = "bert.encoder.layer.1.output.dense.weight"
    save_file({key: value for key, value in weights.items() if key != name}, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"no fitting weights for bert\.encoder\.layer\.1\.output"):
        load_compressed(copied)
    stray = {**weights, "bert.encoder.layer.2.output.dense.weight": torch.zeros(2, 2)}
    save_file(stray, file, metadata={"format": "pt"})
    with pytest.raises(ModelError, match="no place for"):
        load_compressed(copied)
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ModelError, match="damaged"):
        load_compressed(copied)


def test_a_head_of_another_size_is_made_anew_and_nothing_else(pruned):
    torch.manual_seed(0)
    model = load_compressed(pruned, num_labels=7)
    whole = load_compressed(pruned)
    assert model.classifier.weight.shape == (7, 32)
    assert torch.isfinite(model.classifier.weight).all() and model.classifier.weight.std() > 0
    assert torch.equal(model.bert.pooler.dense.weight, whole.bert.pooler.dense.weight)
    assert torch.equal(model.bert.encoder.layer[1].output.dense.weight, whole.bert.encoder.layer[1].output.dense.weight)
