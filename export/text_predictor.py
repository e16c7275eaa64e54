"""A converted file as its users meet it: text in, logits out, through its own tokenizer, one sentence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compressor.core.artifact import Artifact, IOSpec
from compressor.core.schema import Text
from compressor.text import SentenceEncoder, bucket
from export.backend import Backend, Predictor, backend_for

_MOST_BYTES_TO_REPEAT = 300_000_000


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
        predictors: one or more runtimes of the same file; sentences are shared out among them, each in a thread.
    """

    def __init__(self, encoder: SentenceEncoder, io: IOSpec, *predictors: Predictor) -> None:
        self.encoder = encoder
        self.io = io
        self.predictors = predictors

    @classmethod
    def load(cls, artifact: Artifact, *, threads: int = 1) -> TextPredictor:
        """Opens an artifact in its format's usual runtime on this machine."""
        backend = backend_for(artifact.manifest.format)
        backend.require()
        encoder = SentenceEncoder.load(artifact.path, max_tokens=artifact.io.max_tokens, pad_id=artifact.io.pad_id)
        return cls(encoder, artifact.io, *open_predictors(backend, artifact.path, artifact.io, threads=threads))

    def logits(self, texts: Sequence[Text]) -> TextLogits:
        """Returns the logits of each text, in order."""
        encoded = self.encoder.encode(texts)
        rows: list[np.ndarray] = [np.empty(0)] * len(encoded)

        def share(number: int) -> None:
            for index in range(number, len(encoded), len(self.predictors)):
                batch = self.encoder.pad([encoded[index]], bucket(len(encoded[index]), self.io.lengths))
                rows[index] = self.predictors[number].logits(batch)[0]

        with ThreadPoolExecutor(len(self.predictors)) as pool:
            list(pool.map(share, range(len(self.predictors))))
        return TextLogits(np.stack(rows), sum(item.truncated for item in encoded))


def open_predictors(backend: Backend, folder: Path, io: IOSpec, *, threads: int) -> list[Predictor]:
    """Opens a converted file once a thread, each with one thread of its own: a short sentence gains little from two.

    A file too large to be held several times is opened once, with all threads.
    """
    size = sum(path.stat().st_size for path in folder.glob(f"{backend.model_file}*"))
    if size > _MOST_BYTES_TO_REPEAT:
        return [backend.open(folder, io, threads=threads)]
    return [backend.open(folder, io, threads=1) for _ in range(threads)]


def probabilities(logits: np.ndarray, activation: str) -> np.ndarray:
    """Returns scores of the same shape as ``logits`` (texts, labels) by the activation that ``io.json`` names."""
    if activation == "identity":
        return logits
    if activation == "sigmoid":
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))
