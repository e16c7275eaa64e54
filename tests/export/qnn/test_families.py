"""Every family compiles as a whole, at tiny size, and answers as its float graph does."""

import numpy as np
import pytest

from compressor.families import adapter_for
from compressor.models import load_compressed, load_config
from compressor.quantize.plan import QuantizationPlan
from compressor.text import SentenceEncoder
from devices.profiles import load_profile
from export.backend import ConversionSpec
from export.calibration import Calibration
from export.onnx.predictor import OnnxPredictor
from export.qnn.backend import PLAIN, QnnBackend
from export.qnn.predictor import SimulatedPredictor
from tests.export.qnn.helpers import PHONE, needs_qnn
from tests.models import SENTENCES

LENGTHS = (10,)


# BERT is what every other test here is made of; RoBERTa, XLM-R and ELECTRA have its graph.
@pytest.mark.parametrize(("family", "precision"), [
    ("albert", "w8a16"), ("distilbert", "w8a16"), ("mobilebert", "w8a16"), ("deberta-v2", "w8a16"),
    ("albert", "w8a8"), ("mobilebert", "w8a8"), ("deberta-v2", "w8a8"),
])  # fmt: skip
def test_a_family_runs_on_the_npu_as_one_context(family, precision, checkpoint_of, tmp_path):
    needs_qnn()
    checkpoint = checkpoint_of(family)
    config = load_config(checkpoint)
    adapter = adapter_for(config)
    encoder = SentenceEncoder.load(checkpoint.path, max_tokens=LENGTHS[-1])
    spec = ConversionSpec(
        lengths=LENGTHS, max_tokens=LENGTHS[-1], takes_token_types=adapter.takes_token_types(config),
        pad_id=encoder.pad_id, num_labels=3, model_type=adapter.model_type, device=load_profile(PHONE),
    )  # fmt: skip
    source, folder = tmp_path / "fp32", tmp_path / precision
    source.mkdir()
    folder.mkdir()
    backend = QnnBackend()
    backend.convert(load_compressed(checkpoint.path), spec, source)
    calibration = Calibration(encoder=encoder, texts=SENTENCES, lengths=LENGTHS)
    backend.reduce(source, folder, precision, QuantizationPlan(), calibration)
    facts = backend.finish(folder, spec, precision)
    assert str(facts["placement"]).startswith("100.0 %") and "in 1 context" in str(facts["placement"])
    assert backend.inspect(folder / "model.bin").precision == precision
    batch = encoder.pad(encoder.encode(SENTENCES[:2]), LENGTHS[-1])
    reference = OnnxPredictor(source / PLAIN, threads=1, fixed_batch=1).logits(batch)
    predictor = SimulatedPredictor(folder, LENGTHS, PLAIN)
    found = predictor.logits(batch)
    predictor.close()
    noise = np.square(found - reference).mean()
    assert 10 * np.log10(np.square(reference - reference.mean()).mean() / noise) > 20
