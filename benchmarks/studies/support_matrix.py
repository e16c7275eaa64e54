"""Which system converts to which format in which precision: measured, one process a cell, written to a document.

    python -m benchmarks.studies.support_matrix [--systems a,b] [--formats onnx] [--precisions int8] [--threads 1]

Every cell leaves a JSON file in ``--runs``; one that is there and was made by the same code and libraries is not made
again. The document is written from the files of all cells, so a matrix can be measured in parts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks.studies.process_memory import peak_bytes
from benchmarks.studies.support_document import write_document
from benchmarks.studies.systems import NAMES, write_checkpoint
from compressor.app.inputs import read_texts
from compressor.core.artifact import NPU_PRECISIONS, PRECISIONS, Format, Precision
from compressor.core.environment import machine, versions
from compressor.core.errors import CompressorError
from compressor.core.folders import write_json
from compressor.core.hashing import sha256_json
from compressor.quantize.plan import Method, QuantizationPlan
from compressor.sources import source_hash
from devices.profiles import load_profile
from export.backend import backend_for

EVERY_PRECISION: tuple[Precision, ...] = tuple(dict.fromkeys((*PRECISIONS, *NPU_PRECISIONS)))
NPU_DEVICE = "snapdragon-8gen3"
"""What formats that are compiled ahead of time are compiled for."""
LENGTHS = (16, 32, 64, 128)
NPU_LENGTHS = (32,)
"""A simulator takes seconds for a sentence of a base model."""
CALIBRATION_TEXTS = 128
PARITY_TEXTS = 48
_EXPLAINED = ("fused", "delegated", "proof", "rtx_plan", "npu")
"""Beginnings of the manifest's notes that a cell repeats."""


@dataclass(frozen=True)
class Cell:
    """One measurement: a system in a format, a precision and, for INT8, a method."""

    system: str
    format: Format
    precision: Precision
    method: Method | None

    @property
    def name(self) -> str:
        """Name of its file, and how the document calls it."""
        parts = (self.system, self.format, self.precision, self.method)
        return ".".join(part for part in parts if part)


def cells(systems: list[str], formats: list[Format], precisions: list[Precision]) -> Iterator[Cell]:
    """Yields every combination, offered or not: what a format refuses is a result too. FP32 comes first.

    The precisions that NPUs alone know are cells of the formats that offer them only.
    """
    for system in systems:
        for format_name in formats:
            offers = backend_for(format_name).offers
            for precision in EVERY_PRECISION:
                if precision in precisions and (precision in PRECISIONS or offers(precision)):
                    methods: tuple[Method | None, ...] = _methods(format_name) if precision == "int8" else (None,)
                    yield from (Cell(system, format_name, precision, method) for method in methods)


def _methods(format_name: Format) -> tuple[Method, ...]:
    return ("static",) if format_name == "tensorrt" else get_args(Method)  # TensorRT knows fixed ranges only


def measure(cell: Cell, checkpoint: Path, cache: Path, threads: int) -> dict[str, Any]:
    """Exports one cell in this process and returns what was found; an error a user can cause is a result."""
    import torch

    from compressor.core.checkpoint import Checkpoint
    from compressor.data.intents import generate_intents
    from export.build import export_artifacts
    from export.cache import ConversionCache
    from export.source import ExportRequest

    torch.set_num_threads(threads)
    texts, source = read_texts(None)
    settings = {} if cell.method is None else {"method": cell.method}
    backend = backend_for(cell.format)
    planned = cell.precision != "fp32" and cell.precision in PRECISIONS
    plan = QuantizationPlan.uniform(cell.precision, **settings) if planned else QuantizationPlan()
    calibrated = cell.method == "static" or cell.precision in NPU_PRECISIONS
    calibration = tuple(generate_intents().train.texts[:CALIBRATION_TEXTS]) if calibrated else ()
    request = ExportRequest(
        formats=(cell.format,), precisions=(cell.precision,), plan=plan, name=cell.system,
        parity_texts=texts[:PARITY_TEXTS], parity_source=source, calibration_texts=calibration, threads=threads,
        lengths=NPU_LENGTHS if backend.simulated else LENGTHS,
        device=load_profile(NPU_DEVICE) if backend.simulated else None,
    )  # fmt: skip
    started = time.monotonic()
    with tempfile.TemporaryDirectory(dir=cache) as output:
        try:
            made = export_artifacts(
                Checkpoint.open(checkpoint), request, Path(output), cache=ConversionCache(cache / "conversions")
            )
        except CompressorError as error:
            status = "failed" if error.code in ("stage", "parity") else "refused"
            return {"status": status, "reason": error.message, "seconds": time.monotonic() - started}
        seconds = time.monotonic() - started
        artifact = made.artifacts[0]
        manifest = artifact.manifest
        parity = json.loads((artifact.path / "parity.json").read_text(encoding="utf-8"))
        return {
            "status": "ok",
            "found_precision": manifest.precision,
            "max_error": parity["max_error"],
            "signal_to_noise_db": parity["signal_to_noise_db"],
            "size_bytes": manifest.statistics.size_bytes,
            "model_sha256": manifest.files[manifest.model_file],
            "notes": [note for note in manifest.notes if note.startswith(_EXPLAINED)],
            "seconds": seconds,
        }


def main(arguments: list[str] | None = None) -> int:
    """Measures the cells that are asked for and writes the document; returns 1 where a cell failed."""
    options = _options(arguments)
    if options.cell:
        return _one(Cell(*json.loads(options.cell)), options)
    options.runs.mkdir(parents=True, exist_ok=True)
    texts, _ = read_texts(None)
    for system in options.systems:
        wanted = [cell for cell in cells([system], options.formats, options.precisions) if _stale(cell, options.runs)]
        if not wanted:
            continue
        with tempfile.TemporaryDirectory(prefix=f".{system}-", dir=options.runs) as folder:
            checkpoint = Path(folder) / "checkpoint"
            write_checkpoint(system, checkpoint, tuple(str(text) for text in texts))
            for cell in wanted:
                _in_its_own_process(cell, Path(folder), options)
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(options.runs.glob("*.json"))]
    write_document(documents, options.document)
    print(f"{options.document} says what {len(documents)} cells found")
    return int(any(document["status"] == "failed" for document in documents))


def _one(cell: Cell, options: argparse.Namespace) -> int:
    found = measure(cell, options.work / "checkpoint", options.work, options.threads)
    write_json(options.work / "cell.json", {**found, "peak_bytes": peak_bytes()})
    return 0


def _in_its_own_process(cell: Cell, work: Path, options: argparse.Namespace) -> None:
    result = work / "cell.json"
    result.unlink(missing_ok=True)
    fields = [cell.system, cell.format, cell.precision, cell.method]
    command = [sys.executable, "-m", __spec__.name, "--cell", json.dumps(fields), "--work", str(work),
               "--threads", str(options.threads)]  # fmt: skip
    with (options.runs / f"{cell.name}.log").open("wb") as log:
        try:
            code = subprocess.run(command, stdout=log, stderr=log, timeout=options.timeout_s).returncode
        except subprocess.TimeoutExpired:
            code = None
    if result.is_file():
        found = json.loads(result.read_text(encoding="utf-8"))
    else:
        why = f"not done in {options.timeout_s} s" if code is None else f"the process ended with exit code {code}"
        found = {"status": "failed", "reason": f"{why}; see {cell.name}.log"}
    head = {"system": cell.system, "format": cell.format, "precision": cell.precision, "method": cell.method}
    made = {"key": _key(cell), "threads": options.threads, "commit": _commit(), "date": time.strftime("%Y-%m-%d"),
            "machine": machine(), "versions": versions(), "parameters": _parameters(work / "checkpoint")}  # fmt: skip
    write_json(options.runs / f"{cell.name}.json", {**head, **found, **made})
    print(f"{cell.name}: {found['status']} {found.get('reason', '')}".rstrip(), flush=True)


def _parameters(checkpoint: Path) -> dict[str, int]:
    """Returns number and bytes of the checkpoint's stored parameters; safetensors stores a shared one once."""
    from safetensors import safe_open

    count = 0
    for file in checkpoint.glob("*.safetensors"):
        with safe_open(file, framework="np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (no mapping)
                size = 1
                for dimension in tensors.get_slice(name).get_shape():
                    size *= dimension
                count += size
    return {"count": count, "bytes": 4 * count}


def _stale(cell: Cell, runs: Path) -> bool:
    try:
        return bool(json.loads((runs / f"{cell.name}.json").read_text(encoding="utf-8"))["key"] != _key(cell))
    except (OSError, ValueError, KeyError):
        return True


def _key(cell: Cell) -> str:
    sources = [source_hash(name) for name in ("export.build", "export.exporter", "benchmarks.studies.systems")]
    return sha256_json({"cell": cell.name, "versions": versions(), "source": sources})


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    here = Path(__file__).parent
    head, changes = (
        subprocess.run([git, *command], cwd=here, capture_output=True, text=True).stdout.strip()
        for command in (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
    )
    return f"{head or 'unknown'}{' with changes' if changes else ''}"


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--systems", type=_among(NAMES), default=list(NAMES), help="comma-separated")
    parser.add_argument("--formats", type=_among(get_args(Format)), default=list(get_args(Format)))
    parser.add_argument("--precisions", type=_among(EVERY_PRECISION), default=list(EVERY_PRECISION))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--timeout-s", type=int, default=3600, help="seconds after which a cell has failed")
    parser.add_argument("--runs", type=Path, default=Path("runs/matrix"))
    parser.add_argument("--document", type=Path, default=Path("docs/support.md"))
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _among(known: tuple[str, ...]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: expected some of {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
