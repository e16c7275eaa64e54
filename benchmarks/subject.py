"""What is measured: an artifact, or a baseline such as the teacher in PyTorch, in the same terms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compressor.core.artifact import Artifact, Format, IOSpec, Precision
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ArtifactError
from compressor.core.hashing import sha256_file
from devices.runner import EntryPoint, Runtime, entry_points

TORCH_PROCESSES = 2
_RUNTIMES: dict[Format, Runtime] = {"onnx": "onnxruntime", "tflite": "litert", "tensorrt": "tensorrt"}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One thing to time. ``format`` and ``precision`` are set where a device's legality table has a say."""

    name: str
    hash: str
    runtime: Runtime
    model: Path
    """The file the runtime loads; the Hugging Face folder for ``torch``, the artifact's for ``tensorrt``."""
    tokenizer: Path
    """The folder that holds ``tokenizer.json``."""
    max_tokens: int
    pad_id: int
    lengths: tuple[int, ...] = ()
    pad_to: int | None = None
    """Run every sentence at this length; None: at its bucket, or its own length where there are none."""
    signatures: tuple[EntryPoint, ...] = ()
    processes: int | None = None
    """At most this many fresh processes: for a subject that takes long to start and is not judged by its spread."""
    format: Format | None = None
    precision: Precision | None = None
    family: str | None = None
    """The model's type, where it is known."""


def subject_of(artifact: Artifact, *, pad_to: int | None = None) -> Subject:
    """Returns an artifact as a subject.

    Args:
        artifact: an ONNX, TFLite or TensorRT-ready artifact.
        pad_to: run every sentence at this one length instead of its own bucket, to see what padding costs.

    Raises:
        ArtifactError: a format that no runner times yet, or inputs that no sentence fills.
    """
    manifest = artifact.manifest
    if manifest.format not in _RUNTIMES:
        raise ArtifactError(
            f"{artifact.name} is a {manifest.format} artifact; expected {', '.join(_RUNTIMES)}",
            remedy="time it on its phone, with the files and the command in the artifact's README.md",
        )
    return _from_io(
        artifact.io,
        name=artifact.name if pad_to is None else f"{artifact.name}-padded-{pad_to}",
        hash_=artifact.hash,
        runtime=_RUNTIMES[manifest.format],
        model=artifact.path if manifest.format == "tensorrt" else artifact.model_path,
        tokenizer=artifact.path,
        pad_to=pad_to,
        format_name=manifest.format,
        precision=manifest.precision,
        family=artifact.family,
    )


def bare_subject(model: Path, io: IOSpec, *, format_name: Format, precision: Precision, tokenizer: Path) -> Subject:
    """Returns a model file without an artifact around it as a subject.

    Args:
        model: the file.
        io: how it is fed.
        format_name: what runs it.
        precision: as found in it.
        tokenizer: the folder of its ``tokenizer.json``.
    """
    return _from_io(
        io, name=model.stem, hash_=sha256_file(model), runtime=_RUNTIMES[format_name], model=model,
        tokenizer=tokenizer, pad_to=None, format_name=format_name, precision=precision,
    )  # fmt: skip


def torch_subject(checkpoint: Checkpoint, *, name: str, max_tokens: int, pad_to: int | None = None) -> Subject:
    """Returns a plain Hugging Face checkpoint in PyTorch (eager attention, FP32) as a subject.

    Args:
        checkpoint: a folder that transformers loads without help.
        name: e.g. ``teacher-torch-fp32-padded-128``.
        max_tokens: the most tokens a sentence may have.
        pad_to: pad every sentence to this length, as fixed-shape deployments do; None: its own length.
    """
    pad_id = checkpoint.config.get("pad_token_id")
    return Subject(
        name=name,
        hash=checkpoint.hash,
        runtime="torch",
        model=checkpoint.path,
        tokenizer=checkpoint.path,
        max_tokens=max_tokens,
        pad_id=int(pad_id) if pad_id is not None else 0,
        pad_to=pad_to,
        processes=TORCH_PROCESSES,
    )


def _from_io(
    io: IOSpec,
    *,
    name: str,
    hash_: str,
    runtime: Runtime,
    model: Path,
    tokenizer: Path,
    pad_to: int | None,
    format_name: Format,
    precision: Precision,
    family: str | None = None,
) -> Subject:
    return Subject(
        name=name,
        hash=hash_,
        runtime=runtime,
        model=model,
        tokenizer=tokenizer,
        max_tokens=io.max_tokens,
        pad_id=io.pad_id,
        lengths=tuple(sorted(io.lengths)),
        pad_to=pad_to,
        signatures=entry_points(io),
        format=format_name,
        precision=precision,
        family=family,
    )
