"""A compiled artifact, made by the real compiler and run in the simulator."""

import json

import numpy as np
import onnx
import pytest

from compressor.core.errors import ArtifactError, IllegalOnDeviceError, StageError
from export.bundle import read_parity
from export.qnn.predictor import SimulatedPredictor
from export.text_predictor import TextPredictor
from tests.export.qnn.helpers import EVALUATION, PHONE


def test_an_artifact_says_what_it_is_for_where_it_runs_and_that_it_was_simulated(two_lengths):
    manifest = two_lengths.manifest
    assert (manifest.format, manifest.precision, manifest.simulated) == ("onnx-qnn", "w8a16", True)
    assert (manifest.target["device"], manifest.target["soc_model"], manifest.target["hexagon"]) == (PHONE, "57", "v75")
    assert {"qnn", "onnxruntime", "onnxruntime-qnn"} <= manifest.target.keys()
    assert (manifest.placement.delegated, manifest.placement.contexts, manifest.placement.cpu_nodes) == (1.0, 1, {})
    assert set(manifest.model_files) == {"model.bin", "model_8.onnx", "model_12.onnx"}
    assert manifest.statistics.gemm_types.keys() == {"w8a16", "a16a16"}
    assert manifest.reference["artifact"] == manifest.reference["checkpoint"] == 1.0
    parity = read_parity(two_lengths)
    assert "simulated" in parity.runtime and parity.repeatable
    card = (two_lengths.path / "README.md").read_text()
    assert "not run on hardware" in card and "simulated" in card
    assert "libQnnHtpV75Skel.so" in (two_lengths.path / "PHONE.md").read_text()


def test_every_length_points_into_one_context_and_the_plain_graph_lies_beside(two_lengths):
    for length in (8, 12):
        graph = onnx.load(two_lengths.path / f"model_{length}.onnx").graph
        (node,) = graph.node
        (binary,) = [item.s for item in node.attribute if item.name == "ep_cache_context"]
        assert (node.op_type, binary) == ("EPContext", b"model.bin")
        assert [item.type.tensor_type.shape.dim[1].dim_value for item in graph.input] == [length] * len(graph.input)
    plain = onnx.load(two_lengths.path / "plain.onnx").graph
    assert any(node.op_type == "QuantizeLinear" for node in plain.node)
    assert plain.input[0].type.tensor_type.shape.dim[1].dim_param == "tokens"


def test_simulated_answers_outlive_the_process(two_lengths, monkeypatch):
    expected = TextPredictor.load(two_lengths).run(EVALUATION.texts[:2]).logits

    def refuse(self):
        raise AssertionError("the simulator was started for sentences it had answered")

    monkeypatch.setattr(SimulatedPredictor, "_started", refuse)
    again = TextPredictor.load(two_lengths)
    np.testing.assert_array_equal(again.run(EVALUATION.texts[:2]).logits, expected)
    with pytest.raises(AssertionError):
        again.run(EVALUATION.texts[:2])  # an answer is given once: asking twice runs it


def test_a_plain_graph_that_is_not_the_context_s_own_is_refused(two_lengths, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with (two_lengths.path / "model.bin").open("ab") as stream:
        stream.write(b"\0")
    with pytest.raises(StageError, match=r"does not give the bytes of model.bin"):
        TextPredictor.load(two_lengths).run(EVALUATION.texts[:1])


@pytest.mark.parametrize(("key", "value", "says"), [
    ("compressor.qnn", "2.40.0", "compiled by QNN 2.40.0"),
    ("compressor.npu", "", "does not say for which NPU"),
])  # fmt: skip
def test_a_context_of_another_qnn_version_is_refused_before_it_is_loaded(two_lengths, key, value, says):
    path = two_lengths.path / "model_8.onnx"
    model = onnx.load(path)
    for item in model.metadata_props:
        item.value = value if item.key == key else item.value
    onnx.save(model, path)
    with pytest.raises(ArtifactError, match=says):
        TextPredictor.load(two_lengths)


def test_evaluate_tells_that_a_simulator_answered_a_sample(two_lengths, tmp_path):
    from compressor.app.judge import evaluate

    labels = two_lengths.labels
    rows = zip(EVALUATION.texts, EVALUATION.labels, strict=True)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"text": text, "label": labels[label]}) + "\n" for text, label in rows))
    found = evaluate(two_lengths.path, data, examples=4, threads=1)
    assert (found.simulated, found.examples, found.sampled_from, found.value) == (True, 4, 10, 1.0)


def test_the_simulator_never_yields_a_latency(two_lengths):
    from compressor.app.latency import bench, gate

    with pytest.raises(IllegalOnDeviceError, match="only simulates the NPU"):
        bench(two_lengths.path, device="host")
    budget = two_lengths.path.parent / "budget.yaml"
    budget.write_text("version: 1\nbudgets:\n  - {device: host, p95_ms: 5.0}\n")
    verdict = gate(two_lengths.path, budget=budget, device="host")
    assert (verdict.verdict, verdict.checks[0].value) == ("invalid", None)


def test_a_phone_with_another_soc_is_refused(two_lengths):
    from compressor.app.latency import bench

    with pytest.raises(
        IllegalOnDeviceError, match=r"compiled for snapdragon-8gen3.*expected one for snapdragon-8elite"
    ):
        bench(two_lengths.path, device="snapdragon-8elite@adb:R5")
