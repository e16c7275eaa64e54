"""A converted file as its users meet it: text in, logits out, through its own tokenizer, one sentence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compressor.core.artifact import Artifact, IOSpec
from compressor.core.schema import Text
from compressor.text import SentenceEncoder, bucket
from export.backend import Predictor, backend_for


@dataclass(frozen=True)
class TextLogits:
    """Logits of shape (texts, labels) and how many texts were longer than the model takes."""

    logits: np.ndarray
    truncated: int


class TextPredictor:
    """Tokenises, pads each sentence to its own length bucket, and runs it alone, as on a device.

    Args:
        encoder: the tokenizer that travels with the file.
        io: lengths and signatures.
        predictor: the runtime.
    """

    def __init__(self, encoder: SentenceEncoder, io: IOSpec, predictor: Predictor) -> None:
        self.encoder = encoder
        self.io = io
        self.predictor = predictor

    @classmethod
    def load(cls, artifact: Artifact, *, threads: int = 1) -> TextPredictor:
        """Opens an artifact in its format's usual runtime on this machine."""
        backend = backend_for(artifact.manifest.format)
        backend.require()
        encoder = SentenceEncoder.load(artifact.path, max_tokens=artifact.io.max_tokens, pad_id=artifact.io.pad_id)
        return cls(encoder, artifact.io, backend.open(artifact.path, artifact.io, threads=threads))

    def logits(self, texts: Sequence[Text]) -> TextLogits:
        """Returns the logits of each text, in order."""
        encoded = self.encoder.encode(texts)
        rows = [
            self.predictor.logits(self.encoder.pad([item], bucket(len(item), self.io.lengths)))[0] for item in encoded
        ]
        return TextLogits(np.stack(rows), sum(item.truncated for item in encoded))


def probabilities(logits: np.ndarray, activation: str) -> np.ndarray:
    """Returns scores of the same shape as ``logits`` (texts, labels) by the activation that ``io.json`` names."""
    if activation == "identity":
        return logits
    if activation == "sigmoid":
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
