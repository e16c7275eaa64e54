"""Channels far above the others: equalised before a product is quantised, carried by sums of 16 bits."""

import numpy as np
import onnx
import pytest
import torch

from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.quantize.plan import ActivationRange, QuantizationPlan
from compressor.text import SentenceEncoder
from devices.profiles import load_profile
from export.backend import ConversionSpec
from export.calibration import Calibration
from export.onnx import files
from export.onnx.predictor import OnnxPredictor
from export.qnn import quantize as quantizing
from export.qnn.backend import PLAIN, QnnBackend
from export.qnn.equalize import OUTLIER, equalize_outputs
from export.qnn.inspection import statistics_of
from export.qnn.predictor import SimulatedPredictor
from export.qnn.ranges import channel_maxima
from export.qnn.widths import mixes_widths
from tests.export.qnn.helpers import PHONE, needs_qnn
from tests.models import SENTENCES

LENGTHS = (8, 10)
CHANNEL = 3
EXCESS = 300.0


class Subject:
    """A float graph whose feed-forward layers write one channel far above the others, as trained encoders' do."""

    def __init__(self, checkpoint, folder):
        model = load_compressed(checkpoint.path)
        self.encoder = SentenceEncoder.load(checkpoint.path, max_tokens=LENGTHS[-1])
        with torch.no_grad():
            torch.manual_seed(0)
            for name, parameter in model.named_parameters():
                if name.endswith("bias"):  # fresh ones are all zero, and one stored tensor
                    parameter.add_(0.02 * torch.randn_like(parameter))
                if "ffn_output" in name or ("output.dense" in name and "attention" not in name):
                    parameter[CHANNEL] *= EXCESS
        spec = ConversionSpec(
            lengths=LENGTHS, max_tokens=LENGTHS[-1], pad_id=self.encoder.pad_id, num_labels=3,
            takes_token_types=adapter_for(model.config).takes_token_types(model.config),
            model_type=model.config.model_type, device=load_profile(PHONE),
        )  # fmt: skip
        QnnBackend().convert(model, spec, folder)
        self.plain, self.shares = folder / PLAIN, model.config.model_type == "albert"
        self.calibration = Calibration(encoder=self.encoder, texts=SENTENCES, lengths=LENGTHS)

    def logits(self, path):
        batch = self.encoder.pad(self.encoder.encode(SENTENCES), LENGTHS[-1])
        return OnnxPredictor(path, threads=1, fixed_batch=1).logits(batch)

    def ratio_db(self, path):
        reference, found = self.logits(self.plain), self.logits(path)
        return 10 * np.log10(np.square(reference - reference.mean()).mean() / np.square(found - reference).mean())

    def quantized(self, path):
        quantizing.quantize(self.plain, path, "w8a8", QuantizationPlan(), self.calibration)
        return self.ratio_db(path)


@pytest.fixture(params=["bert", "albert"])
def subject(request, checkpoint_of, tmp_path):
    needs_qnn()
    return Subject(checkpoint_of(request.param), tmp_path)


def test_equalised_channels_are_of_one_size_and_the_function_is_the_same(subject, tmp_path):
    model = files.load(subject.plain)
    added = equalize_outputs(model, subject.calibration)
    assert len(added) >= 2 and {node.op_type for node in added} == {"Mul"}, "every layer takes its channels back"
    factors = {node.inputs[1].name for node in added}
    assert len(factors) == (1 if subject.shares else len(added)), "a weight that layers share has one factor"
    products = [node.inputs[0].producer().inputs for node in added]
    names = [str(value.name) for inputs in products for value in inputs if value.producer() is not None]
    for largest in channel_maxima(model, names, subject.calibration).values():
        assert largest[CHANNEL] < OUTLIER * np.median(largest)
    files.save(model, tmp_path / "equal.onnx")
    np.testing.assert_allclose(subject.logits(tmp_path / "equal.onnx"), subject.logits(subject.plain), atol=1e-4)


@pytest.mark.parametrize("subject", ["bert"], indirect=True)
def test_8_bits_keep_the_signal_beside_a_channel_of_outliers(subject, tmp_path, monkeypatch):
    ours = subject.quantized(tmp_path / "ours.onnx")
    graph = files.load(tmp_path / "ours.onnx")
    assert mixes_widths(graph)
    assert statistics_of(tmp_path / "ours.onnx", [], LENGTHS).gemm_types.keys() == {"w8a8", "a8a8"}
    monkeypatch.setattr(quantizing, "equalize_outputs", lambda model, calibration: frozenset())
    monkeypatch.setattr(quantizing, "wide_nodes", lambda *given: frozenset())
    plain = subject.quantized(tmp_path / "plain-8.onnx")
    assert not mixes_widths(files.load(tmp_path / "plain-8.onnx"))
    assert ours > plain + 6


def test_factors_that_span_hundreds_have_16_bits(subject, tmp_path):
    subject.quantized(tmp_path / "ours.onnx")
    stored = {item.name: item for item in onnx.load(tmp_path / "ours.onnx").graph.initializer}
    factors = [item for name, item in stored.items() if name.endswith("_factor_quantized")]
    assert factors and {item.data_type for item in factors} == {onnx.TensorProto.UINT16}


@pytest.mark.parametrize("subject", ["bert"], indirect=True)
def test_a_context_laid_out_otherwise_is_simulated_where_widths_mix(subject, tmp_path):
    folder = tmp_path / "w8a8"
    folder.mkdir()
    QnnBackend().reduce(tmp_path, folder, "w8a8", QuantizationPlan(), subject.calibration)
    with (folder / "model.bin").open("ab") as stream:
        stream.write(b"\0")
    batch = subject.encoder.pad(subject.encoder.encode(SENTENCES[:1]), 10)
    found = SimulatedPredictor(folder, LENGTHS, PLAIN).logits(batch)
    reference = OnnxPredictor(subject.plain, threads=1, fixed_batch=1).logits(batch)
    assert np.abs(found - reference).max() < 0.2 * np.abs(reference).max()


def test_ranges_that_training_found_are_those_of_the_graph(checkpoint_of, tmp_path):
    needs_qnn()
    subject = Subject(checkpoint_of("bert"), tmp_path)
    path = "bert.encoder.layer.0.intermediate.dense"
    plan = QuantizationPlan(ranges={path: ActivationRange(input=(-1.0, 6553.5), output=(-1.0, 1.0))})
    quantizing.quantize(subject.plain, tmp_path / "a16.onnx", "w8a16", plan, subject.calibration)
    scales = [
        float(node.inputs[1].const_value.numpy())
        for node in files.load(tmp_path / "a16.onnx").graph
        if node.op_type == "QuantizeLinear"
    ]
    assert max(scales) == pytest.approx(0.1, rel=0.01)
