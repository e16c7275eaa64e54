"""Sentences on which ranges of activations are observed: streamed, at the lengths the artifact will run at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compressor.core.schema import Text
from compressor.text import Batch, Encoded, SentenceEncoder, bucket

ROWS = 8
"""Sentences in one batch."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Real, unlabelled text and how it reaches the model; can be walked any number of times.

    A sentence is padded to the smallest of ``lengths`` that holds it, as it will be when the artifact runs, so padding
    is calibrated in its true share. Only one batch a length is held at a time, however many texts there are.
    """

    encoder: SentenceEncoder
    texts: Sequence[Text]
    lengths: tuple[int, ...]
    """Ascending length buckets; longer sentences are truncated to the last."""

    def __len__(self) -> int:
        return len(self.texts)

    def batches(self, rows: int = ROWS) -> Iterator[Batch]:
        """Yields padded batches of up to ``rows`` sentences; every sentence once, in a fixed order."""
        waiting: dict[int, list[Encoded]] = {length: [] for length in self.lengths}
        for start in range(0, len(self.texts), rows):
            for item in self.encoder.encode(self.texts[start : start + rows]):
                length = bucket(len(item), self.lengths)
                waiting[length].append(item)
                if len(waiting[length]) == rows:
                    yield self.encoder.pad(waiting.pop(length), length)
                    waiting[length] = []
        for length, items in waiting.items():
            if items:
                yield self.encoder.pad(items, length)
