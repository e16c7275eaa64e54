"""``bundle``: a TFLite artifact as a folder an Android app can use."""

from __future__ import annotations

from pathlib import Path

from compressor.core.artifact import Artifact
from compressor.core.schema import Text
from compressor.data.reader import read_sentences
from export.android.bundle import Bundle, write_bundle

MOST_VECTORS = 200
"""Sentences that become test vectors: a file an app's test reads in a moment."""


def bundle(
    artifact: Path,
    output: Path,
    *,
    mediapipe_length: int | None = None,
    sentences: Path | None = None,
    force: bool = False,
) -> Bundle:
    """Writes the Android bundle of an artifact.

    Args:
        artifact: a TFLite artifact's folder; it is read and proven whole, never changed.
        output: the bundle's folder.
        mediapipe_length: length of MediaPipe's file; default: the artifact's longest.
        sentences: sentences whose first become test vectors of the tokenizer.
        force: replace a folder that is no bundle.

    Raises:
        CompressorError: see :func:`export.android.bundle.write_bundle`.
    """
    texts: tuple[Text, ...] = () if sentences is None else tuple(read_sentences(sentences))[:MOST_VECTORS]
    return write_bundle(
        Artifact.load(artifact), output.resolve(), mediapipe_length=mediapipe_length, texts=texts, force=force
    )
