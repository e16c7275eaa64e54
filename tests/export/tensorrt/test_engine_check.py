"""What the layers of an engine prove, read from the inspector's own words."""

import copy

import pytest

from export.tensorrt.device.engine_check import (
    EnginePrecisionError,
    machine_facts,
    precision_proof,
    require_precision,
)
from tests.export.tensorrt.inspector_samples import EIGHT, FFN, NAMES_ONLY, OPAQUE, POOLER, QUERY, SCORES, TEN

INT8 = {"int8": [QUERY, FFN], "fp16": [SCORES]}


def test_ten_names_every_product_in_its_metadata():
    assert precision_proof(TEN, INT8) == (3, [], 0)
    assert require_precision(TEN, INT8) == "3 of 3 matrix products are in layers of the stated type"


def test_eight_names_them_in_the_layer_itself():
    assert precision_proof(EIGHT, {"fp16": [QUERY, POOLER]}) == (1, [POOLER], 0)
    assert require_precision(EIGHT[:1], {"fp16": [QUERY]}).startswith("1 of 1")


@pytest.mark.parametrize("kind", ["Float", "Row major linear FP32", "Half"])
def test_an_int8_graph_whose_engine_is_not_int8_is_refused(kind):
    layers = copy.deepcopy(TEN)
    for layer in layers[1], layers[3]:
        layer["Inputs"][0]["Format/Datatype"] = kind
    with pytest.raises(EnginePrecisionError, match="1 of 3 matrix products"):
        require_precision(layers, INT8)


def test_products_that_are_in_no_layer_count_against_an_engine_that_could_be_read():
    with pytest.raises(EnginePrecisionError, match="1 of 3"):
        require_precision(TEN[:2], INT8)


def test_opaque_layers_hide_products_and_prove_less():
    found = require_precision([*OPAQUE, EIGHT[0]], {"fp16": [QUERY, SCORES, FFN]})
    assert found == "1 of 1 matrix products are in layers of the stated type, 2 more in opaque layers"
    assert "borders" in require_precision(OPAQUE, {"fp16": [SCORES, FFN]})
    full = copy.deepcopy(OPAQUE)
    for tensor in full[0]["Inputs"] + full[0]["Outputs"]:
        tensor["Format/Datatype"] = "Row major linear FP32"
    with pytest.raises(EnginePrecisionError, match="no layer of the engine reads or writes fp16"):
        require_precision(full, {"fp16": [SCORES, FFN]})


def test_bare_names_prove_nothing():
    with pytest.raises(EnginePrecisionError):
        require_precision(NAMES_ONLY, {"fp16": [QUERY]})
    assert "FP32" in require_precision(NAMES_ONLY, {"fp32": [QUERY]})


def test_a_machine_without_a_driver_has_no_gpu_and_still_has_a_name():
    class Absent:
        __version__ = "10.3.0"

    class NoDevice:
        def cuInit(self, flags):
            return 100

    facts = machine_facts(Absent, NoDevice())
    assert (facts["tensorrt"], facts["gpu"], facts["compute_capability"]) == ("10.3.0", None, None)
    assert facts["machine"]
