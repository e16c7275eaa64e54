"""A converted file as its users meet it: text in, outputs out, through its own tokenizer, one sentence at a time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from compressor.core.artifact import Artifact, IOSpec
from compressor.core.schema import Text
from compressor.core.task import is_per_token, outputs_of
from compressor.tasks.base import TextOutputs
from compressor.text import SentenceEncoder, bucket
from export.backend import Backend, Predictor, backend_for

_MOST_BYTES_TO_REPEAT = 300_000_000


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

    def run(self, texts: Sequence[Text]) -> TextOutputs:
        """Returns the task's outputs for each text, in order and without padding."""
        task = self.io.task
        encoded = self.encoder.encode(texts)
        rows: dict[str, list[np.ndarray]] = {name: [np.empty(0)] * len(encoded) for name in outputs_of(task)}

        def share(number: int) -> None:
            for index in range(number, len(encoded), len(self.predictors)):
                tokens = len(encoded[index])
                batch = self.encoder.pad([encoded[index]], bucket(tokens, self.io.lengths))
                found = self.predictors[number].run(batch)
                for name, kept in rows.items():
                    kept[index] = found[name][0, :tokens] if is_per_token(task) else found[name][0]

        with ThreadPoolExecutor(len(self.predictors)) as pool:
            list(pool.map(share, range(len(self.predictors))))
        return TextOutputs(rows, sum(item.truncated for item in encoded))


def open_predictors(backend: Backend, folder: Path, io: IOSpec, *, threads: int) -> list[Predictor]:
    """Opens a converted file once a thread, each with one thread of its own: a short sentence gains little from two.

    A file too large to be held several times is opened once, with all threads.
    """
    size = sum(path.stat().st_size for path in folder.glob(f"{backend.model_file}*"))
    if size > _MOST_BYTES_TO_REPEAT:
        return [backend.open(folder, io, threads=threads)]
    return [backend.open(folder, io, threads=1) for _ in range(threads)]
