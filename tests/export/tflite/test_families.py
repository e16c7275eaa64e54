import pytest

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


def test_albert_stores_its_shared_layer_once():
    """The norm before a layer differs between its first use and its second; folded in, it would split the weights."""
    made = sample("albert", 2)
    statistics = BACKEND.inspect(made.fp32 / "model.tflite")
    unique = sum(parameter.numel() for parameter in made.model.parameters()) * 4
    assert statistics.unique_parameter_bytes <= 1.1 * unique
    assert statistics.gemm_types["fp32"] > 1.5 * len(load_modules(read(made.fp32 / "model.tflite")).weights)
