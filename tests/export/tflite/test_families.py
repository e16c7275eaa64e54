from contextlib import nullcontext

import pytest

from compressor.core.errors import ModelError, StageError
from export.tflite.flatbuffer import LOOKUPS, read, weight_uses
from export.tflite.modules import load_modules
from tests.export.tflite.samples import BACKEND, LENGTHS, sample
from tests.models import FAMILIES

LAYERS = {"albert": 2}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_what_pytorch_does_at_every_length_with_padding(family):
    made = sample(family, LAYERS.get(family, 1))
    assert made.error(made.fp32) <= 1e-4
    statistics = BACKEND.inspect(made.fp32 / "model.tflite")
    assert statistics.precision == "fp32"
    assert statistics.lengths == LENGTHS


@pytest.mark.parametrize("family", FAMILIES)
def test_every_weight_knows_its_module(family):
    made = sample(family, LAYERS.get(family, 1))
    converted = read(made.fp32 / "model.tflite")
    modules = load_modules(converted)
    uses = list(weight_uses(converted))
    unknown = [use.name for use in uses if use.buffer not in modules.weights]
    assert not unknown
    assert {modules.weights[use.buffer] for use in uses if use.name in LOOKUPS} >= {
        path for path in modules.modules if path.endswith("word_embeddings")
    }


def test_query_key_and_value_are_told_apart():
    made = sample("bert")
    paths = set(load_modules(read(made.fp32 / "model.tflite")).weights.values())
    linear = {name for name, module in made.model.named_modules() if type(module).__name__ == "Linear"}
    tables = {"bert.embeddings.word_embeddings", "bert.embeddings.token_type_embeddings"}
    assert paths == linear | tables


def test_a_file_that_lost_sharing_is_refused(tmp_path, monkeypatch):
    """Without the barriers the converter folds each norm's scale into a copy of the shared layer's weights."""
    made = sample("albert", 2)
    monkeypatch.setattr("export.tflite.convert.unfolded_norms", lambda model: nullcontext())
    with pytest.raises(StageError, match="stored more than once"):
        BACKEND.convert(made.model, made.spec, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_error_after_tracing_is_one_of_the_model(tmp_path, monkeypatch):
    made = sample("bert")
    monkeypatch.setattr("export.tflite.convert.trace", lambda *arguments: made.traced)
    monkeypatch.setattr("export.tflite.convert.find_modules", lambda converted, model: 1 // 0)
    with pytest.raises(ModelError, match="could not convert this bert model"):
        BACKEND.convert(made.model, made.spec, tmp_path)


def test_albert_stores_its_shared_layer_once():
    """The norm before a layer differs between its first use and its second; folded in, it would split the weights."""
    made = sample("albert", 2)
    statistics = BACKEND.inspect(made.fp32 / "model.tflite")
    unique = sum(parameter.numel() for parameter in made.model.parameters()) * 4
    assert statistics.unique_parameter_bytes <= 1.1 * unique
    assert statistics.gemm_types["fp32"] > 1.5 * len(load_modules(read(made.fp32 / "model.tflite")).weights)
