"""P06: an overflow that only half arithmetic meets, and only in long sentences, is found on a CPU and kept in FP32."""

import numpy as np
import pytest
import torch

from export.onnx import files
from export.onnx.backend import OnnxBackend
from export.onnx.half import to_half
from export.onnx.half_audit import audited_half, emulated
from export.onnx.ranges import session_of
from tests.export.onnx.helpers import Source
from tests.models import SENTENCES, tiny_checkpoint

LAYER = "bert.encoder.layer.1.output.dense"


def poisoned(tmp_path, poison):
    source = Source(tiny_checkpoint("bert", tmp_path / "checkpoint"))
    with torch.no_grad():
        poison(source.model.bert)
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    return source


def hot_layer(bert):
    """Normalisation behind it hides how large this layer's sums are: FP32 does not care."""
    bert.encoder.layer[1].intermediate.dense.weight.mul_(8)
    bert.encoder.layer[1].output.dense.weight.mul_(1.5e5)


def hot_positions(bert):
    """Position and token type add up beyond half range, from the 17th position on."""
    bert.embeddings.position_embeddings.weight[16:, 3] = 5e4
    bert.embeddings.token_type_embeddings.weight[:, 3] = 3e4


def half_logits(model, source, texts):

    session = session_of(emulated(model), optimize=False)
    encoder = source.calibration().encoder
    return np.concatenate([session.run(None, encoder.pad(encoder.encode([text])))[0] for text in texts])


@pytest.mark.parametrize("poison", [hot_layer, hot_positions])
def test_overflow_is_found_and_widened(tmp_path, poison):
    source = poisoned(tmp_path, poison)
    blind, audited = files.load(tmp_path / "model.onnx"), files.load(tmp_path / "model.onnx")
    texts = [*SENTENCES, " ".join(SENTENCES)]
    to_half(blind)
    assert not np.isfinite(half_logits(blind, source, texts)).all()
    short = [text for text in SENTENCES if len(text.split()) < 10]  # the audit itself makes long sentences of them
    audit = audited_half(audited, source.calibration(tuple(short)))
    assert audit.widened and audit.widened[0].magnitude > 16_000
    assert any(peak.module.startswith(("bert.embeddings", LAYER)) for peak in audit.widened)
    found = half_logits(audited, source, texts)
    assert np.isfinite(found).all()
    expected = np.concatenate(
        [
            source.reference(source.calibration().encoder.pad(source.calibration().encoder.encode([text])))
            for text in texts
        ]
    )
    assert np.abs(found - expected).max() <= 0.05 * expected.std()


def test_short_sentences_alone_would_not_show_it(tmp_path):
    source = poisoned(tmp_path, hot_positions)
    blind = files.load(tmp_path / "model.onnx")
    to_half(blind)
    assert np.isfinite(half_logits(blind, source, ["where is my order"])).all()
