"""A folder with an ONNX model that takes the text itself, made from a proven artifact and checked against it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment, StrictUndefined

from compressor.core.artifact import CARD, LABELS, Artifact
from compressor.core.errors import ArtifactError, StageError
from compressor.core.folders import new_folder, write_json, write_text
from compressor.core.hashing import file_hashes
from compressor.core.task import is_per_token
from compressor.text import SentenceEncoder
from export import wordpiece
from export.android.bundle import BUNDLE, TOKENIZER, BundleOrigin
from export.android.tokenization import PROBES
from export.backend import require_package
from export.onnx import files as onnx_files
from export.onnx.predictor import OnnxPredictor
from export.onnx.raw_text import TextSession, take_text

MOST_OTHERS = 0.01
"""Largest share of sentences that may be cut into other tokens than in training."""


class TextBundle(BundleOrigin):
    """``bundle.json`` of a model that takes text."""

    max_tokens: int
    checked_texts: int
    """Sentences that were run through the file and through the artifact with its own tokenizer."""
    other_answers: tuple[str, ...]
    """Those of them whose answer is not the artifact's to the bit: the operator cuts them into other tokens."""
    other_probes: tuple[str, ...]
    """The same of built-in texts in many scripts."""
    files: dict[str, str]
    """Relative path to SHA-256, of every file but this one and the marker."""


def write_text_bundle(artifact: Artifact, output: Path, *, texts: Sequence[str], force: bool = False) -> TextBundle:
    """Writes the bundle of an ONNX artifact.

    Args:
        artifact: an ONNX artifact that answers about one whole text.
        output: the folder to write.
        texts: sentences on which the new file must give the artifact's answers, to the bit, but for MOST_OTHERS.
        force: replace a folder that is no bundle.

    Raises:
        ArtifactError: the artifact's tokenizer or task is not one that the operator serves.
        MissingExtraError: onnxruntime-extensions is not installed.
        StageError: too many answers differ.
        FolderError: ``output`` is not ours or cannot be written.
    """
    require_package("onnxruntime_extensions", "onnxruntime-extensions", "text")
    manifest, io = artifact.manifest, artifact.io
    tokenizer = json.loads((artifact.path / TOKENIZER).read_text(encoding="utf-8"))
    refused = wordpiece.refusal(tokenizer, io)
    if is_per_token(io.task):
        refused = f"it answers {io.task}, token by token, and the operator does not say where tokens stand"
    if refused is not None:
        raise ArtifactError(
            f"{artifact.path.name} cannot take raw text: {refused}",
            remedy="ship the artifact with its tokenizer.json and run that in the app",
        )
    with new_folder(output, "bundle", force=force) as folder:
        graph = onnx_files.load(artifact.model_path)
        take_text(graph, io.signatures[0], tokenizer, max_tokens=io.max_tokens)
        onnx_files.save(graph, folder / manifest.model_file)
        shutil.copyfile(artifact.path / LABELS, folder / LABELS)
        differing = set(_other_answers(artifact, folder / manifest.model_file, (*texts, *PROBES)))
        others = tuple(text for text in texts if text in differing)
        if len(others) > MOST_OTHERS * len(texts):
            raise StageError(
                f"the operator cuts {len(others)} of {len(texts)} sentences into other tokens than the tokenizer does, "
                f"e.g. {others[0][:80]!r}; expected at most {MOST_OTHERS:.0%}",
                remedy="ship the artifact with its tokenizer.json and run that in the app",
            )
        bundle = TextBundle(
            name=manifest.source["name"], artifact=artifact.hash, checkpoint=manifest.source["checkpoint"],
            precision=manifest.precision, model_file=manifest.model_file, max_tokens=io.max_tokens,
            checked_texts=len(texts), other_answers=others,
            other_probes=tuple(text for text in PROBES if text in differing), files={},
        )  # fmt: skip
        write_text(folder / CARD, _card(artifact, bundle))
        bundle = bundle.model_copy(update={"files": file_hashes(folder)})
        write_json(folder / BUNDLE, bundle.model_dump(mode="json"))
    return bundle


def _other_answers(artifact: Artifact, path: Path, texts: Sequence[str]) -> Iterator[str]:
    """Yields the texts to which the file's answer is not the artifact's, to the bit, at the text's own length."""
    io = artifact.io
    encoder = SentenceEncoder.load(artifact.path, max_tokens=io.max_tokens, pad_id=io.pad_id)
    ours, theirs = OnnxPredictor(artifact.model_path, threads=1), TextSession(path)
    for text, encoded in zip(texts, encoder.encode(texts), strict=True):
        wanted = ours.run(encoder.pad([encoded]))
        if not all(map(np.array_equal, theirs.run(text), wanted.values())):
            yield text


def _card(artifact: Artifact, bundle: TextBundle) -> str:
    template = files("export").joinpath("onnx", "templates", "TextModel.md.jinja").read_text(encoding="utf-8")
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False)
    output = artifact.io.signatures[0].outputs[0].name
    return environment.from_string(template).render(
        bundle=bundle, output=output, activation=artifact.io.activation, labels=artifact.labels
    )
