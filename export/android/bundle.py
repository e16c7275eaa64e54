"""A folder for an Android app, made from a proven TFLite artifact; the artifact itself stays as it is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from tokenizers import Tokenizer

from compressor.core.artifact import CARD, IO, LABELS, Artifact, Signature
from compressor.core.errors import ArtifactError, UsageError
from compressor.core.folders import new_folder, write_json, write_text
from compressor.core.hashing import file_hashes
from compressor.core.schema import Record, Text
from compressor.text import TOKEN_TYPE_IDS, SentenceEncoder, load_tokenizer
from export import wordpiece
from export.android.mediapipe import mediapipe_model, refusal
from export.android.tokenization import describe, probe_texts, specials, vectors
from export.tflite.delegates import delegate_lines, delegate_reports
from export.tflite.flatbuffer import read

BUNDLE = "bundle.json"
VECTORS = "tokenizer_vectors.json"
TOKENIZER = "tokenizer.json"
VOCABULARY = "vocab.txt"
_MEDIAPIPE = "mediapipe"


class BundleOrigin(Record):
    """Where a bundle came from: how every ``bundle.json`` begins."""

    schema_version: int = 1
    name: str
    artifact: str
    """Hash of the artifact, over all its files."""
    checkpoint: str
    precision: str
    model_file: str


class Bundle(BundleOrigin):
    """``bundle.json`` of a TFLite artifact: where it came from and what is in it."""

    lengths: tuple[int, ...]
    mediapipe_file: str | None
    mediapipe_length: int | None
    mediapipe_refusal: str | None
    """Why MediaPipe's text classifier cannot run the model; None where there is a file for it."""
    tokenizer_cases: int
    delegates: dict[str, str]
    """Delegate and devices to what it would take and refuse, by rule; not run on hardware."""
    files: dict[str, str]
    """Relative path to SHA-256, of every file but this one and the marker."""


def write_bundle(
    artifact: Artifact,
    output: Path,
    *,
    mediapipe_length: int | None = None,
    texts: Sequence[Text] = (),
    force: bool = False,
) -> Bundle:
    """Writes the bundle of a TFLite artifact.

    Args:
        artifact: a TFLite artifact of one classifier.
        output: the folder to write.
        mediapipe_length: length of MediaPipe's file; default: the artifact's longest.
        texts: the user's own texts, which become test vectors of the tokenizer beside the built-in ones.
        force: replace a folder that is no bundle.

    Raises:
        ArtifactError: not a TFLite artifact.
        UsageError: the artifact has no entry point of ``mediapipe_length``.
        FolderError: ``output`` is not ours or cannot be written.
    """
    if artifact.manifest.format != "tflite":
        raise ArtifactError(
            f"{artifact.path.name}: found format {artifact.manifest.format}; expected tflite or onnx",
            remedy="make one with 'compressor convert MODEL --to tflite -o DIR'",
        )
    length = mediapipe_length or artifact.io.lengths[-1]
    signature = next((item for item in artifact.io.signatures if item.length == length), None)
    if signature is None:
        raise UsageError(
            f"the artifact has no entry point for {length} tokens; it has {', '.join(map(str, artifact.io.lengths))}",
            remedy="pass one of these as --mediapipe-length",
        )
    tokenizer = load_tokenizer(artifact.path)
    definition = json.loads((artifact.path / TOKENIZER).read_text(encoding="utf-8"))
    with new_folder(output, "bundle", force=force) as folder:
        for name in (artifact.manifest.model_file, TOKENIZER, LABELS, IO):
            shutil.copyfile(artifact.path / name, folder / name)
        vocabulary = wordpiece.vocabulary(definition)
        if vocabulary:
            write_text(folder / VOCABULARY, "".join(f"{piece}\n" for piece in vocabulary))
        cases = _vectors(artifact, tokenizer, texts)
        write_json(folder / VECTORS, cases)
        refused = refusal(definition, artifact.io)
        mediapipe_file = None if refused else _write_mediapipe(folder, artifact, signature, vocabulary)
        bundle = Bundle(
            name=artifact.manifest.source["name"],
            artifact=artifact.hash,
            checkpoint=artifact.manifest.source["checkpoint"],
            precision=artifact.manifest.precision,
            model_file=artifact.manifest.model_file,
            lengths=artifact.io.lengths,
            mediapipe_file=mediapipe_file,
            mediapipe_length=length if mediapipe_file else None,
            mediapipe_refusal=refused,
            tokenizer_cases=len(cases["cases"]),
            delegates=delegate_lines(delegate_reports(artifact.model_path)),
            files={},
        )
        _write_documents(folder, artifact, bundle, definition, cases)
        bundle = bundle.model_copy(update={"files": file_hashes(folder)})
        write_json(folder / BUNDLE, bundle.model_dump(mode="json"))
    return bundle


def _vectors(artifact: Artifact, tokenizer: Tokenizer, texts: Sequence[Text]) -> dict[str, Any]:
    io = artifact.io
    encoder = SentenceEncoder.load(artifact.path, max_tokens=io.max_tokens, pad_id=io.pad_id)
    return vectors(encoder, io, (*probe_texts(io), *texts), lambda index: str(tokenizer.id_to_token(index)))


def _write_mediapipe(folder: Path, artifact: Artifact, signature: Signature, vocabulary: Sequence[str]) -> str:
    """Writes the single-length file and returns its path within the bundle."""
    content = mediapipe_model(
        read(artifact.model_path), signature, vocabulary=vocabulary, labels=artifact.labels,
        activation=artifact.io.activation, name=artifact.manifest.source["name"],
    )  # fmt: skip
    path = folder / _MEDIAPIPE / f"text_classifier_{signature.length}.tflite"
    path.parent.mkdir()
    path.write_bytes(content)
    return path.relative_to(folder).as_posix()


def _write_documents(
    folder: Path, artifact: Artifact, bundle: Bundle, definition: dict[str, Any], cases: dict[str, Any]
) -> None:
    io = artifact.io
    first = io.signatures[0]
    single, single_types = _frame(definition, "single")
    pair, pair_types = _frame(definition, "pair")
    values = {
        "name": bundle.name,
        "model_file": bundle.model_file,
        "precision": bundle.precision,
        "size": artifact.manifest.statistics.size_bytes,
        "lengths": io.lengths,
        "max_tokens": io.max_tokens,
        "pad_id": io.pad_id,
        "activation": io.activation,
        "columns": io.text_columns,
        "signatures": io.signatures,
        "roles": first.roles,
        "output": first.outputs[0].name,
        "type_ids": TOKEN_TYPE_IDS in first.roles,
        "vocabulary_file": VOCABULARY if (folder / VOCABULARY).is_file() else None,
        "mediapipe": bundle.mediapipe_file,
        "mediapipe_length": bundle.mediapipe_length,
        "refusal": bundle.mediapipe_refusal,
        "delegates": [f"{name}: {verdict}" for name, verdict in bundle.delegates.items()],
        "steps": describe(definition),
        "specials": specials(definition),
        "single": single,
        "single_types": single_types,
        "pair": pair,
        "pair_types": pair_types,
        "cases": len(cases["cases"]),
        "example": cases["cases"][0],
    }
    for template, target in (
        ("TOKENIZATION.md", "TOKENIZATION.md"), ("TextClassifier.kt", "TextClassifier.kt"), ("README.md", CARD),
    ):  # fmt: skip
        write_text(folder / target, _render(template, values))


def _render(template: str, values: dict[str, Any]) -> str:
    source = files("export").joinpath("android", "templates", f"{template}.jinja").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    return environment.from_string(source).render(**values)


def _frame(definition: dict[str, Any], kind: str) -> tuple[str, str]:
    """Returns how one text (``single``) or two (``pair``) are framed, and the token types of that frame's parts."""
    post = definition.get("post_processor") or {}
    steps = post.get("processors", [post])
    for step in steps:
        if step.get("type") == "TemplateProcessing":
            parts = [next(iter(part.items())) for part in step[kind]]
            names = [value["id"] if key == "SpecialToken" else f"text {value['id']}" for key, value in parts]
            return " ".join(names), ", ".join(str(value["type_id"]) for _, value in parts)
        if step.get("type") in ("BertProcessing", "RobertaProcessing"):
            start, end = step["cls"][0], step["sep"][0]
            roberta = step["type"] == "RobertaProcessing"
            middle = f"{end} {end}" if roberta else end
            if kind == "single":
                return f"{start} text A {end}", "0, 0, 0"
            return f"{start} text A {middle} text B {end}", "all 0" if roberta else "0, 0, 0, 1, 1"
    return ("text A", "0") if kind == "single" else ("", "")
