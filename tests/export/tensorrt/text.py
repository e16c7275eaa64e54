"""Calibration text for the tiny models."""

from __future__ import annotations

from compressor.text import SentenceEncoder
from export.calibration import Calibration
from tests.export.onnx.helpers import Source
from tests.models import SENTENCES


def calibration_of(source: Source) -> Calibration:
    lengths = source.spec.lengths
    encoder = SentenceEncoder.load(source.checkpoint.path, max_tokens=lengths[-1])
    return Calibration(encoder=encoder, texts=SENTENCES, lengths=lengths)
