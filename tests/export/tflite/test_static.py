import numpy as np
import pytest

from compressor.core.errors import StageError, UsageError
from compressor.quantize.plan import ActivationRange, QuantizationPlan
from export.calibration import Calibration
from export.tflite import static
from export.tflite.flatbuffer import operator_name, read, type_names, weight_uses
from export.tflite.modules import load_modules
from tests.export.tflite.samples import BACKEND, LENGTHS, sample
from tests.models import SENTENCES

STATIC = QuantizationPlan(method="static", observer="minmax")


def calibration(texts=SENTENCES):
    return Calibration(encoder=sample("bert").encoder, texts=texts, lengths=LENGTHS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    target = tmp_path_factory.mktemp("static")
    BACKEND.reduce(sample("bert").fp32, target, "int8", STATIC, calibration())
    return target


def linear(converted):
    return [use for use in weight_uses(converted) if use.name == "FULLY_CONNECTED"]


def activations(converted, use):
    tensors = converted.subgraphs[use.subgraph].tensors
    return tensors[int(use.operator.inputs[0])], tensors[int(use.operator.outputs[0])]


def test_linear_layers_compute_on_fixed_ranges_at_every_length(folder):
    converted = read(folder / "model.tflite")
    assert {use.subgraph for use in linear(converted)} == set(range(len(LENGTHS)))
    for use in linear(converted):
        assert {type_names()[tensor.type] for tensor in activations(converted, use)} == {"int8"}
    assert sample("bert").error(folder) <= 0.15


def test_inputs_stay_int32_and_the_answer_float32(folder):
    for signature in BACKEND.signatures(folder):
        assert {spec.dtype for spec in signature.inputs} == {"int32"}
        assert [spec.dtype for spec in signature.outputs] == ["float32"]


def test_embeddings_are_integers_too_and_all_lengths_share_every_weight(folder):
    converted = read(folder / "model.tflite")
    tables = [use for use in weight_uses(converted) if use.name != "FULLY_CONNECTED"]
    assert tables
    assert {type_names()[use.tensor.type] for use in tables} == {"int8"}
    buffers = [{use.buffer for use in weight_uses(converted) if use.subgraph == index} for index in range(len(LENGTHS))]
    assert buffers[0] == buffers[1]
    dynamic = sample("bert").reduced("int8") / "model.tflite"
    # What is more is one pair of numbers an activation and the operators that convert.
    grown = (folder / "model.tflite").stat().st_size - dynamic.stat().st_size
    assert grown < 400 * sum(len(graph.operators) for graph in converted.subgraphs)


def test_the_file_is_called_int8_and_says_so_by_operator_and_by_bytes(folder):
    found = BACKEND.inspect(folder / "model.tflite")
    assert found.precision == "int8"
    assert set(found.operator_types["FULLY_CONNECTED"]) == {"int8"}
    assert found.parameter_bytes["int8"] > found.parameter_bytes["fp32"]
    assert sum(found.parameter_bytes.values()) == found.unique_parameter_bytes


def test_a_length_that_no_sentence_reached_gets_the_ranges_of_the_others(tmp_path):
    short = calibration(
        tuple(text for text in SENTENCES if len(sample("bert").encoder.encode([text])[0]) <= LENGTHS[0])
    )
    BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", STATIC, short)
    converted = read(tmp_path / "model.tflite")
    scales = [
        [float(activations(converted, use)[0].quantization.scale[0]) for use in linear(converted) if use.subgraph == n]
        for n in range(len(LENGTHS))
    ]
    assert scales[0] == scales[1]


def test_ranges_from_training_take_the_place_of_observed_ones(tmp_path):
    path = "bert.encoder.layer.0.output.dense"
    known = {path: ActivationRange(input=(-1.0, 4.1), output=(-2.0, 3.1))}
    plan = STATIC.model_copy(update={"ranges": known})
    BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", plan, calibration())
    converted = read(tmp_path / "model.tflite")
    modules = load_modules(converted)
    uses = [use for use in linear(converted) if modules.weights[use.buffer] == path]
    assert len(uses) == len(LENGTHS)
    for use in uses:
        steps = [float(tensor.quantization.scale[0]) for tensor in activations(converted, use)]
        assert steps == pytest.approx([5.1 / 255, 5.1 / 255], rel=1e-5)


def test_static_without_text_names_the_option(tmp_path):
    with pytest.raises(UsageError, match="none was given") as caught:
        BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", STATIC)
    assert "--calibrate" in caught.value.remedy
    assert not list(tmp_path.iterdir())


def test_an_activation_that_is_not_finite_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(static.np, "isfinite", lambda values: np.zeros(1, dtype=bool))
    with pytest.raises(StageError, match="not finite"):
        BACKEND.reduce(sample("bert").fp32, tmp_path, "int8", STATIC, calibration())


def test_norms_and_softmax_stay_in_floating_point(folder):
    converted = read(folder / "model.tflite")
    for graph in converted.subgraphs:
        for operator in graph.operators:
            if operator_name(converted, operator) in ("SOFTMAX", "RSQRT", "MEAN", "SQUARED_DIFFERENCE"):
                assert type_names()[graph.tensors[int(operator.outputs[0])].type] == "float32"


def test_int4_weights_are_symmetric_per_channel_in_four_bits(tmp_path):
    made = sample("bert")
    BACKEND.reduce(made.fp32, tmp_path, "int4", QuantizationPlan.uniform("int4"))
    found = BACKEND.inspect(tmp_path / "model.tflite")
    assert found.precision == "int4"
    assert set(found.gemm_types) == {"int4"}
    assert found.size_bytes < BACKEND.inspect(made.reduced("int8") / "model.tflite").size_bytes
    for use in linear(read(tmp_path / "model.tflite")):
        assert len(use.tensor.quantization.scale) == use.tensor.shape[0]
        assert not use.tensor.quantization.zeroPoint.any()
    assert made.error(tmp_path) <= 1.0


def test_a_layer_that_is_applied_several_times_keeps_one_copy_and_its_answers(tmp_path):
    """Every application has ranges of its own, and so biases in steps of its own; the matrix is the same."""
    made = sample("albert", layers=2, lengths=(16,))
    text = Calibration(encoder=made.encoder, texts=SENTENCES, lengths=(16,))
    BACKEND.reduce(made.fp32, tmp_path, "int8", STATIC, text)
    dynamic = read(made.reduced("int8") / "model.tflite")
    assert len({use.buffer for use in weight_uses(read(tmp_path / "model.tflite"))}) == len(
        {use.buffer for use in weight_uses(dynamic)}
    )
    assert made.error(tmp_path) <= 0.15
