"""An artifact: a folder an app or a device can use as it is, with a manifest that proves every file in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from compressor.core.errors import ArtifactError
from compressor.core.folders import MARKER, write_json
from compressor.core.hashing import combine, file_hashes
from compressor.core.schema import Record
from compressor.core.stored import read_record
from compressor.core.task import Activation, Task

Format = Literal["onnx", "tflite", "tensorrt", "onnx-qnn"]
Precision = Literal["fp32", "fp16", "int8", "int4", "mixed", "w8a16", "w8a8"]
FORMATS: tuple[Format, ...] = ("onnx", "tflite", "tensorrt", "onnx-qnn")
DEFAULT_FORMATS: tuple[Format, ...] = ("onnx", "tflite", "tensorrt")
"""What is made where nothing is named: ``onnx-qnn`` needs the SoC it is for."""
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8", "int4")
"""What can be asked for of a CPU or GPU, the safest first."""
NPU_PRECISIONS: tuple[Precision, ...] = ("fp16", "mixed", "w8a16", "w8a8")
"""What can be asked for of an NPU, the safest first. ``w8a16`` and ``w8a8`` name the bits of weights and activations;
``mixed`` is ``w8a16`` with the modules that lose most by it in half precision."""

MANIFEST = "manifest.json"
IO = "io.json"
PARITY = "parity.json"
LABELS = "labels.txt"
CARD = "README.md"
PLACEMENT = "placement.json"
TARGET = "target.json"
"""What a compiler left where, and what a compiled file is tied to; formats compiled ahead of time write both."""
_AGAIN = "an artifact is never edited: copy it again, or convert again"


class TensorSpec(Record):
    """One input or output; a dynamic dimension has a name instead of a number."""

    name: str
    dtype: Literal["int32", "int64", "float32", "float16", "int8", "uint8"]
    shape: tuple[int | str, ...]


class Signature(Record):
    """The inputs and outputs of one entry point, read back from the converted file.

    ``key`` names the entry point where the format has several (a TFLite signature, a TensorRT profile).
    ``length`` is its number of tokens, None where it is dynamic. Input names are the canonical ones
    (``input_ids``, ``attention_mask``, ``token_type_ids``) whatever the file calls them: ``TensorSpec.name`` is the
    file's own name and ``roles`` maps canonical name to it; ``output_roles`` does the same for the outputs (``logits``;
    ``start_logits`` and ``end_logits``; ``embedding``).
    """

    key: str | None = None
    length: int | None = None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    roles: dict[str, str]
    output_roles: dict[str, str] = Field(default_factory=dict)


class IOSpec(Record):
    """``io.json``: everything an app must know to feed the model and read its answer."""

    schema_version: Literal[1] = 1
    task: Task = "text-classification"
    text_columns: int = Field(default=1, ge=1, le=2)
    """2 where a text is a pair: premise and hypothesis, question and context."""
    max_tokens: int
    lengths: tuple[int, ...]
    """Ascending length buckets; a sentence runs at the smallest that holds it. Empty: any length to ``max_tokens``."""
    pad_id: int
    signatures: tuple[Signature, ...]
    activation: Activation = "softmax"
    """What turns the outputs into scores; ``identity`` where they are the answer."""


class ModelStatistics(Record):
    """What was found in a converted file."""

    format: Format
    precision: Precision
    size_bytes: int
    unique_parameter_bytes: int
    parameters: int
    lengths: tuple[int, ...]
    operators: dict[str, int]
    gemm_types: dict[str, int]
    operator_types: dict[str, dict[str, int]] = Field(default_factory=dict)
    """Operators that read a stored weight matrix, by the type it is stored in: ``{"MatMul": {"int8": 12}}``."""
    parameter_bytes: dict[str, int] = Field(default_factory=dict)
    """``unique_parameter_bytes`` by the type they are stored in: ``{"int8": 22000000, "fp32": 90000}``."""
    opset: int | None = None


class Placement(Record):
    """Where the operators of a compiled file run, as read from the file and from what its compiler said."""

    nodes: int = Field(ge=1)
    """Operators of the graph that was compiled, at the length where most stayed behind."""
    cpu_nodes: dict[str, int] = Field(default_factory=dict)
    """Operator to how many of them stayed on the CPU, at that length."""
    contexts: int = Field(ge=0)
    """Parts that run on the accelerator without interruption; 1 is best."""
    reasons: dict[str, str] = Field(default_factory=dict)
    """Operator to why the compiler left it on the CPU."""

    @property
    def delegated(self) -> float:
        """The share of operators that run on the accelerator, 0 to 1."""
        return 1.0 - sum(self.cpu_nodes.values()) / self.nodes


class Manifest(Record):
    """``manifest.json``: what the artifact is, from what it was made, and the hash of every file."""

    schema_version: Literal[1] = 1
    format: Format
    precision: Precision
    """As read back from the file, never the request."""
    compute_precision: str
    """What the usual runtime of the format computes in on a CPU, e.g. ``fp32`` for an FP16 file in ONNX Runtime."""
    method: str | None = None
    model_file: str
    model_files: tuple[str, ...]
    """All files that make up the model (external data, build inputs); their sum is the artifact's size."""
    statistics: ModelStatistics
    source: dict[str, str]
    """``checkpoint`` (hash), ``name``, and, for an artifact made from another one, ``parent`` (hash)."""
    reference: dict[str, float] = Field(default_factory=dict)
    """Metrics on the evaluation data: ``teacher``, ``checkpoint``, ``artifact`` (fractions), ``examples``, and the
    expected calibration error of checkpoint and artifact, ``checkpoint_ece`` and ``artifact_ece``."""
    simulated: bool = False
    """True where parity and metrics come from the vendor's simulator, on this machine: the answers of the device, never
    its time."""
    target: dict[str, str] = Field(default_factory=dict)
    """For a file compiled ahead of time: ``device``, ``soc_model``, ``hexagon``, and the versions that compiled it."""
    placement: Placement | None = None
    """For a file compiled ahead of time: what runs on the accelerator."""
    attempts: tuple[dict[str, Any], ...] = ()
    """Every rung of the precision ladder that was tried: precision, metric, drop in points, calibration error, time
    where it was measured, accepted, reason."""
    rebuild: dict[str, Any] = Field(default_factory=dict)
    """The settings that make this artifact again."""
    versions: dict[str, str]
    machine: dict[str, str]
    notes: tuple[str, ...] = ()
    files: dict[str, str]
    """Relative path to SHA-256, of every file but the manifest itself and the marker."""


@dataclass(frozen=True)
class Artifact:
    """An artifact folder whose manifest and ``io.json`` were read."""

    path: Path
    manifest: Manifest
    io: IOSpec

    @classmethod
    def load(cls, path: Path, *, verify: bool = True) -> Artifact:
        """Reads an artifact folder.

        Args:
            path: the folder.
            verify: compare every file's hash with the manifest's.

        Raises:
            ArtifactError: no manifest, a manifest of another schema, or a file that is missing, added or altered.
        """
        if not (path / MANIFEST).is_file():
            raise ArtifactError(
                f"{path} {f'holds no {MANIFEST}' if path.exists() else 'does not exist'}; expected an artifact folder",
                remedy="make one with 'compressor convert MODEL --to onnx -o DIR'",
            )
        manifest = read_record(Manifest, path / MANIFEST, error=ArtifactError, remedy=_AGAIN)
        io = read_record(IOSpec, path / IO, error=ArtifactError, remedy=_AGAIN)
        artifact = cls(path.resolve(), manifest, io)
        if verify:
            artifact.verify()
        return artifact

    def verify(self) -> None:
        """Raises ArtifactError when a file is missing, added or altered since the artifact was made."""
        found = file_hashes(self.path, exclude={MARKER})
        found.pop(MANIFEST, None)
        expected = self.manifest.files
        for name in sorted(expected.keys() | found.keys()):
            if found.get(name) != expected.get(name):
                state = "missing" if name not in found else "unexpected" if name not in expected else "altered"
                raise ArtifactError(
                    f"{self.path / name} is {state}; expected {_stated(found.get(name), expected.get(name))}",
                    remedy=_AGAIN,
                )

    @property
    def model_path(self) -> Path:
        """The file a runtime loads."""
        return self.path / self.manifest.model_file

    @property
    def hash(self) -> str:
        """One hash over all files of the artifact."""
        return combine(self.manifest.files)

    @property
    def name(self) -> str:
        """The folder's name, e.g. ``tflite-int8``."""
        return self.path.name

    @property
    def family(self) -> str | None:
        """The model's type by the artifact's ``config.json``, e.g. ``mobilebert``."""
        try:
            config = json.loads((self.path / "config.json").read_bytes())
        except (OSError, ValueError):
            return None
        return str(config["model_type"]) if "model_type" in config else None

    @property
    def size_mb(self) -> float:
        """Model files only, in units of 10^6 bytes."""
        return self.manifest.statistics.size_bytes / 1e6

    @property
    def labels(self) -> tuple[str, ...]:
        """Label names in the order of the logits."""
        return tuple((self.path / LABELS).read_text(encoding="utf-8").splitlines())


def _stated(found: str | None, stated: str | None) -> str:
    """Returns what a manifest says of a file by the file's hash, and the hash it says."""
    if stated is None:
        return "only files that the manifest lists"
    if found is None:
        return "every file that the manifest lists"
    return f"the SHA-256 {stated[:12]} of the manifest, not {found[:12]}"


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest with the hashes of all files now in ``folder``; call it last."""
    hashes = file_hashes(folder, exclude={MARKER})
    hashes.pop(MANIFEST, None)
    write_json(folder / MANIFEST, manifest.model_copy(update={"files": hashes}).model_dump(mode="json"))
