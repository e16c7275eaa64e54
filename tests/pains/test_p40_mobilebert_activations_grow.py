"""P40: NoNorm lets MobileBERT's activations grow beyond half range; the audit reports it and keeps them in FP32."""

import numpy as np
import torch

from export.onnx import files
from export.onnx.backend import OnnxBackend
from export.onnx.half import to_half
from export.onnx.half_audit import audited_half, emulated
from export.onnx.ranges import session_of
from tests.export.onnx.helpers import Source
from tests.models import tiny_checkpoint


def logits(model, source):
    session = session_of(model, optimize=False)
    names = [item.name for item in session.get_inputs()]
    return np.concatenate([session.run(None, {n: batch[n] for n in names})[0] for batch in source.batches()])


def test_growing_activations_are_widened(tmp_path):
    source = Source(tiny_checkpoint("mobilebert", tmp_path / "checkpoint"))
    with torch.no_grad():
        for layer in source.model.mobilebert.encoder.layer:
            layer.output.bottleneck.LayerNorm.weight.mul_(6000)  # NoNorm: a factor, no normalisation
    OnnxBackend().convert(source.model, source.spec, tmp_path)
    exact = logits(files.load(tmp_path / "model.onnx"), source)
    blind, audited = files.load(tmp_path / "model.onnx"), files.load(tmp_path / "model.onnx")
    to_half(blind)
    assert not np.isfinite(logits(emulated(blind), source)).all()
    audit = audited_half(audited, source.calibration())
    assert any("layer.1.output.bottleneck" in peak.module for peak in audit.widened)
    found = logits(emulated(audited), source)
    assert np.abs(found - exact).max() <= 0.05 * exact.std()
