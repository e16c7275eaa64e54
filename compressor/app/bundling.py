"""``bundle``: an artifact as a folder an app can use."""

from __future__ import annotations

from pathlib import Path

from compressor.app.inputs import read_texts
from compressor.core.artifact import Artifact
from compressor.core.errors import UsageError
from compressor.core.schema import Text
from compressor.data.reader import read_sentences
from export.android.bundle import Bundle, write_bundle
from export.onnx.text_bundle import TextBundle, write_text_bundle

MOST_VECTORS = 200
"""Sentences that become test vectors: a file an app's test reads in a moment."""


def bundle(
    artifact: Path,
    output: Path,
    *,
    mediapipe_length: int | None = None,
    sentences: Path | None = None,
    force: bool = False,
) -> Bundle | TextBundle:
    """Writes the bundle of an artifact: TFLite for Android; ONNX as a model that takes the text itself.

    Args:
        artifact: a TFLite or ONNX artifact's folder; it is read and proven whole, never changed.
        output: the bundle's folder.
        mediapipe_length: TFLite: length of MediaPipe's file; default: the artifact's longest.
        sentences: TFLite: their first become test vectors of the tokenizer. ONNX: at most one in a hundred may get
            another answer than the artifact's; default: the built-in English intents.
        force: replace a folder that is no bundle.

    Raises:
        CompressorError: see :func:`export.android.bundle.write_bundle` and
            :func:`export.onnx.text_bundle.write_text_bundle`.
    """
    loaded, folder = Artifact.load(artifact), output.resolve()
    if loaded.manifest.format == "onnx":
        if mediapipe_length is not None:
            raise UsageError("--mediapipe-length is for TFLite artifacts", remedy="leave it out")
        checked = tuple(text for text in read_texts(sentences)[0] if isinstance(text, str))
        if not checked:
            raise UsageError(
                f"{sentences} holds no single text to check the bundle on; expected sentences",
                remedy="name a file with one text a line, or leave --sentences out",
            )
        return write_text_bundle(loaded, folder, texts=checked, force=force)
    texts: tuple[Text, ...] = () if sentences is None else tuple(read_sentences(sentences))[:MOST_VECTORS]
    return write_bundle(loaded, folder, mediapipe_length=mediapipe_length, texts=texts, force=force)
