"""Checkpoint to artifacts: every format on its way, side by side where threads and memory allow."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from compressor.core.artifact import (
    NPU_PRECISIONS,
    PRECISIONS,
    Artifact,
    Precision,
)
from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import UsageError
from compressor.core.folders import swap
from compressor.stage import Progress, silent
from export.backend import Backend, backend_for
from export.cache import ConversionCache
from export.exporter import Made, Order, Step, export_format
from export.ladder import Attempt
from export.memory import budget_bytes, predicted_peak
from export.processes import Job, Send, can_run_jobs, run_jobs
from export.source import ExportRequest, ExportSource

_EVERY: tuple[Precision, ...] = tuple(dict.fromkeys((*PRECISIONS, *NPU_PRECISIONS)))


@dataclass(frozen=True)
class ExportResult:
    """What was made, and every rung that was refused on the way."""

    artifacts: tuple[Artifact, ...]
    refused: tuple[Attempt, ...]


def export_artifacts(
    checkpoint: Checkpoint,
    request: ExportRequest,
    output: Path,
    *,
    cache: ConversionCache | None = None,
    progress: Progress = silent,
) -> ExportResult:
    """Makes every requested artifact as a folder ``<format>-<precision>`` in ``output``.

    A folder that is already there and whole is kept, so that a killed export goes on where it was. Formats are made
    side by side, each in a process of its own, where ``request.threads`` and the free memory allow.

    Args:
        checkpoint: what is exported.
        request: formats, precisions, lengths, texts.
        output: folder of the artifacts.
        cache: where FP32 conversions are kept between exports; None: nowhere.
        progress: where progress is told.

    Raises:
        MissingExtraError: before any work, when a format's packages are not installed.
        UsageError: lengths the model cannot take.
        ParityError: a converted file does not give its model's answers.
        AcceptanceError: no precision of the ladder keeps the accuracy; nothing is written for that request.
    """
    backends = [backend_for(name) for name in dict.fromkeys(request.formats)]
    for backend in backends:
        backend.require()
    wanted = {backend: offered_precisions(backend, request.precisions) for backend in backends}
    source = ExportSource.load(checkpoint, request)
    output.mkdir(parents=True, exist_ok=True)
    teller = _Teller(progress, total=sum(map(len, wanted.values())))
    # A latency that is measured beside other work is none.
    alone = request.measure is not None or not can_run_jobs()
    workers = 1 if alone else min(len(backends), request.threads)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=output) as work:
        orders = [
            Order(backend.format, tuple(precisions), source, request, cache, Path(work), output)
            for backend, precisions in wanted.items()
        ]
        if workers > 1:
            made = _in_processes(orders, workers, teller)
        else:
            made = [export_format(replace(order, staging=output), teller.tell) for order in orders]
    teller.end()
    names = [name for format_made in made for name in format_made.names]
    artifacts = tuple(Artifact.load(output / name) for name in dict.fromkeys(names))
    return ExportResult(artifacts, tuple(attempt for format_made in made for attempt in format_made.refused))


@dataclass
class _Teller:
    """Counts finished artifacts for a Progress."""

    progress: Progress
    total: int
    done: int = 0

    def tell(self, step: Step) -> None:
        self.done += step.done
        if not step.done:
            self.progress(self.done, self.total, step.note)

    def end(self) -> None:
        self.progress(self.total, self.total, "exported")


def _in_processes(orders: list[Order], workers: int, teller: _Teller) -> list[Made]:
    """Makes formats side by side; what one has finished stays, whatever becomes of the others."""
    parameters = sum(parameter.nbytes for parameter in orders[0].source.model.parameters())
    share = max(1, orders[0].request.threads // workers)
    staged = {order.format: order.staging / f"{order.format}-staged" for order in orders}
    jobs = [
        Job(
            name=order.format,
            target=_export_in_process,
            argument=replace(order, staging=staged[order.format], request=replace(order.request, threads=share)),
            memory_bytes=predicted_peak(order.format, parameters),
        )
        for order in orders
    ]

    def listen(format_name: str, step: Step) -> None:
        teller.tell(step)
        for name in step.finished:
            swap(staged[format_name] / name, orders[0].output / name)  # type: ignore[index]

    return run_jobs(jobs, workers=workers, memory_bytes=budget_bytes(), listener=listen)


def _export_in_process(order: Order, send: Send) -> Made:
    import torch

    torch.set_num_threads(order.request.threads)
    order.staging.mkdir()
    return export_format(order, send)


def check_precisions(backends: Sequence[Backend], precisions: Sequence[Precision]) -> None:
    """Refuses a precision that none of several formats has; one that some have is made in these.

    Raises:
        UsageError: there is such a precision.
    """
    for item in precisions:
        if any(backend.offers(item) for backend in backends):
            continue
        formats = ", ".join(backend.format for backend in backends)
        known = ", ".join(it for it in _EVERY if any(backend.offers(it) for backend in backends))
        raise UsageError(
            f"there is no {item} file of {formats}; expected some of {known}",
            remedy="leave it out and set 'mixed: true' in a quantize stage, which keeps what INT8 harms in FP16"
            if item == "mixed"
            else "leave it out, or add a format that has it",
        )


def offered_precisions(backend: Backend, precisions: tuple[Precision, ...]) -> list[Precision]:
    """Returns the requested precisions that the format has, a float file before its quantised child.

    Raises:
        UsageError: it has none of them.
    """
    offered = [item for item in _EVERY if item in precisions and backend.offers(item)]
    if not offered:
        known = ", ".join(item for item in _EVERY if backend.offers(item))
        raise UsageError(
            f"{backend.format} cannot be made in {', '.join(precisions)}; expected one of {known}",
            remedy="choose one of these for this format",
        )
    return offered
