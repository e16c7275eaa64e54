"""A bare model file, of whatever maker, with the tokenizer folder that its user names: run with what can be known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compressor.core.artifact import Format, IOSpec, Signature
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ArtifactError, ModelError, UsageError
from compressor.core.task import EMBEDDING, LOGITS, START_LOGITS, Task, outputs_of
from compressor.families import adapter_for
from compressor.families.heads import LABELLED, find_task
from compressor.models import load_config
from compressor.tasks import HEADS
from compressor.text import SentenceEncoder
from export.backend import Predictor, backend_for
from export.text_predictor import TextPredictor

SUFFIXES: dict[str, Format] = {".onnx": "onnx", ".tflite": "tflite"}
_USUAL_LIMIT = 512
"""Positions of most BERT-family models; taken where neither file nor config says."""


@dataclass(frozen=True)
class BareFile:
    """A model file with everything that was found out about feeding it and reading its answer."""

    path: Path
    format: Format
    tokenizer: Path
    io: IOSpec
    labels: tuple[str, ...]

    def predictor(self, *, threads: int) -> TextPredictor:
        """Opens the file in its format's usual runtime on this machine."""
        encoder = SentenceEncoder.load(self.tokenizer, max_tokens=self.io.max_tokens, pad_id=self.io.pad_id)
        return TextPredictor(encoder, self.io, self._runtime(threads))

    def _runtime(self, threads: int) -> Predictor:
        if self.format == "tflite":
            from export.tflite.predictor import TFLitePredictor

            return TFLitePredictor(self.path, self.io, threads=threads)
        from export.onnx.predictor import OnnxPredictor

        batch = self.io.signatures[0].inputs[0].shape[0]
        return OnnxPredictor(self.path, threads=threads, fixed_batch=batch if isinstance(batch, int) else None)


def open_bare(path: Path, tokenizer: Path | None) -> BareFile:
    """Finds out how a model file is fed: inputs, outputs and lengths from the file, the rest from the tokenizer folder.

    Args:
        path: an ``.onnx`` or ``.tflite`` file.
        tokenizer: a folder with ``tokenizer.json``; its ``config.json``, where there is one, tells labels, task and how
            many tokens fit.

    Raises:
        UsageError: no tokenizer folder, or nothing tells how many labels there are.
        ArtifactError: no model file, or one whose inputs no text fills or whose outputs are no answer.
        ModelError: the folder holds no readable tokenizer.
    """
    if path.suffix not in SUFFIXES:
        raise ArtifactError(
            f"{path} is no model file that can be run here; expected {' or '.join(SUFFIXES)}, or an artifact folder",
            remedy="an engine or plan is run where it was built",
        )
    if tokenizer is None:
        raise UsageError(
            f"{path} is a bare model file, which says nothing of how text becomes token ids",
            remedy="name the folder of its tokenizer.json with --tokenizer, or hand over an artifact folder",
        )
    format_name = SUFFIXES[path.suffix]
    backend_for(format_name).require()
    signatures = _signatures(path, format_name)
    source = Checkpoint(tokenizer) if (tokenizer / "config.json").is_file() else None
    lengths = tuple(sorted(item.length for item in signatures if item.length is not None))
    limit = lengths[-1] if lengths else _limit(source)
    encoder = SentenceEncoder.load(tokenizer, max_tokens=limit)
    task = _task(path, signatures[0], source)
    io = IOSpec(
        task=task, activation=HEADS[task].activation, max_tokens=limit, lengths=lengths, pad_id=encoder.pad_id,
        signatures=signatures, text_columns=2 if task == "question-answering" else 1,
    )  # fmt: skip
    return BareFile(path, format_name, tokenizer, io, _labels(task, signatures[0], source))


def _signatures(path: Path, format_name: Format) -> tuple[Signature, ...]:
    if format_name == "tflite":
        from export.tflite.inspect import read_signatures

        return read_signatures(path)
    from export.onnx import files
    from export.onnx.signatures import read_signature

    return (read_signature(files.load(path)),)


def _limit(source: Checkpoint | None) -> int:
    if source is None:
        return _USUAL_LIMIT
    config = load_config(source)
    return adapter_for(config).max_tokens(config)


def _task(path: Path, signature: Signature, source: Checkpoint | None) -> Task:
    """Returns the task that the config names where the outputs are that task's, else the one the outputs suggest."""
    found = set(signature.output_roles)
    try:
        named = find_task(source) if source is not None else None
    except ModelError:
        named = None
    per_token = _rank(signature, LOGITS) == 3
    if named is not None and set(outputs_of(named)) <= found and per_token == (named == "token-classification"):
        return named
    if START_LOGITS in found:
        return "question-answering"
    if EMBEDDING in found:
        return "sentence-embedding"
    if LOGITS in found:
        return "token-classification" if per_token else "text-classification"
    names = ", ".join(spec.name for spec in signature.outputs)
    raise ArtifactError(
        f"{path} gives {names}; expected logits, start_logits and end_logits, or a sentence embedding",
        remedy="export the model with its head, or convert its checkpoint with this project",
    )


def _rank(signature: Signature, role: str) -> int | None:
    name = signature.output_roles.get(role)
    return next((len(spec.shape) for spec in signature.outputs if spec.name == name), None)


def _labels(task: Task, signature: Signature, source: Checkpoint | None) -> tuple[str, ...]:
    if task not in LABELLED:
        return ()
    name = signature.output_roles[LOGITS]
    width = next(spec.shape[-1] for spec in signature.outputs if spec.name == name)
    if source is not None and (not isinstance(width, int) or len(source.labels) == width):
        return source.labels
    if not isinstance(width, int):
        raise UsageError(
            "neither the model file nor the tokenizer's folder says how many labels there are",
            remedy="put the model's config.json beside its tokenizer.json",
        )
    return tuple(f"LABEL_{index}" for index in range(width))
