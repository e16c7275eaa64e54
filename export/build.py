"""Checkpoint to artifacts: convert once in FP32, prove it, reduce it, prove that, judge it on the task, bundle it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compressor.core.artifact import (
    NPU_PRECISIONS,
    PLACEMENT,
    PRECISIONS,
    TARGET,
    Artifact,
    Format,
    IOSpec,
    Manifest,
    Placement,
    Precision,
    write_manifest,
)
from compressor.core.checkpoint import Checkpoint
from compressor.core.environment import machine, versions
from compressor.core.errors import AcceptanceError, ArtifactError, ParityError, StageError, UsageError
from compressor.core.folders import new_folder, swap
from compressor.data.dataset import Split
from compressor.evaluation import Evaluation
from compressor.families import adapter_for
from compressor.quantize.mixed import refinements
from compressor.quantize.plan import QuantizationPlan
from compressor.stage import Progress, silent
from compressor.tasks import HEADS
from export.backend import Backend, backend_for
from export.bundle import write_card, write_companions
from export.cache import ConversionCache, conversion_key
from export.ladder import Attempt, Rung, judge_drop, npu_rungs, rungs
from export.memory import budget_bytes, predicted_peak
from export.parity import Parity, compare, require_parity
from export.processes import Job, Send, can_run_jobs, run_jobs
from export.source import ExportRequest, ExportSource
from export.text_predictor import TextPredictor, open_predictors

logger = logging.getLogger(__name__)

COMPUTE_PRECISION: dict[tuple[Format, Precision], str] = {
    ("onnx", "int8"): "int8",
    ("onnx", "int4"): "int8",
    ("tflite", "int8"): "int8",
    ("tflite", "int4"): "int8",
    ("tensorrt", "fp16"): "fp16",
    ("tensorrt", "int8"): "int8",
    ("onnx-qnn", "fp16"): "fp16",
    ("onnx-qnn", "mixed"): "w8a16 and fp16",
    ("onnx-qnn", "w8a16"): "w8a16",
    ("onnx-qnn", "w8a8"): "w8a8",
}
"""What a CPU (for TensorRT the engine, for onnx-qnn the NPU) computes in; fp32 where it widens half weights first."""

TUNED = "-ort"
"""End of the name of an artifact whose graph has ONNX Runtime's own fused operators."""


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
    wanted = {backend: _offered(backend, request.precisions) for backend in backends}
    source = ExportSource.load(checkpoint, request)
    output.mkdir(parents=True, exist_ok=True)
    teller = _Teller(progress, total=sum(map(len, wanted.values())))
    # A latency that is measured beside other work is none.
    alone = request.measure is not None or not can_run_jobs()
    workers = 1 if alone else min(len(backends), request.threads)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=output) as work:
        orders = [
            _Order(backend.format, tuple(precisions), source, request, cache, Path(work), output)
            for backend, precisions in wanted.items()
        ]
        if workers > 1:
            made = _in_processes(orders, workers, teller)
        else:
            made = [_export_format(replace(order, staging=output), teller.tell) for order in orders]
    teller.end()
    names = [name for format_made in made for name in format_made.names]
    artifacts = tuple(Artifact.load(output / name) for name in dict.fromkeys(names))
    return ExportResult(artifacts, tuple(attempt for format_made in made for attempt in format_made.refused))


@dataclass(frozen=True)
class _Order:
    """What one format has to make."""

    format: Format
    precisions: tuple[Precision, ...]
    source: ExportSource
    request: ExportRequest
    cache: ConversionCache | None
    staging: Path
    """Where finished artifacts are put; in a process of its own a scratch folder, from which its parent takes them."""
    output: Path


@dataclass(frozen=True)
class _Made:
    """Names of the artifact folders of one format, made or kept, and what was refused on the way."""

    names: tuple[str, ...]
    refused: tuple[Attempt, ...]


@dataclass(frozen=True)
class _Step:
    """One precision of a format begins or is done."""

    note: str
    done: bool = False
    finished: tuple[str, ...] = ()
    """Folders of the artifacts that came of it."""


@dataclass
class _Teller:
    """Counts finished artifacts for a Progress."""

    progress: Progress
    total: int
    done: int = 0

    def tell(self, step: _Step) -> None:
        self.done += step.done
        if not step.done:
            self.progress(self.done, self.total, step.note)

    def end(self) -> None:
        self.progress(self.total, self.total, "exported")


def _in_processes(orders: list[_Order], workers: int, teller: _Teller) -> list[_Made]:
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

    def listen(format_name: str, step: _Step) -> None:
        teller.tell(step)
        for name in step.finished:
            swap(staged[format_name] / name, orders[0].output / name)  # type: ignore[index]

    return run_jobs(jobs, workers=workers, memory_bytes=budget_bytes(), listener=listen)


def _export_in_process(order: _Order, send: Send) -> _Made:
    import torch

    torch.set_num_threads(order.request.threads)
    order.staging.mkdir()
    return _export_format(order, send)


def _export_format(order: _Order, tell: Callable[[_Step], None]) -> _Made:
    """Makes one format's artifacts, the FP32 conversion once for all of them."""
    names: list[str] = []
    refused: list[Attempt] = []
    with tempfile.TemporaryDirectory(prefix=".export-", dir=order.staging) as work:
        backend = backend_for(order.format)
        if backend.simulated:
            source, request = order.source.simulated(order.request)
            order = replace(order, source=source, request=request)
        exporter = _Exporter(backend, order, Path(work))
        for precision in order.precisions:
            tell(_Step(f"{order.format} {precision}"))
            made, attempts = exporter.climb(precision)
            refused += [attempt for attempt in attempts if not attempt.accepted]
            fresh = tuple(name for name in made if name not in names and (order.staging / name).is_dir())
            names += made
            tell(_Step(f"{order.format} {precision}", done=True, finished=fresh))
    return _Made(tuple(names), tuple(refused))


def _offered(backend: Backend, precisions: tuple[Precision, ...]) -> list[Precision]:
    """Returns the requested precisions that the format has, a float file before its quantised child."""
    every = dict.fromkeys((*PRECISIONS, *NPU_PRECISIONS))
    offered = [item for item in every if item in precisions and backend.offers(item)]
    if not offered:
        known = ", ".join(item for item in every if backend.offers(item))
        raise UsageError(
            f"{backend.format} cannot be made in {', '.join(precisions)}; expected one of {known}",
            remedy=f"pass --precision {known.rpartition(', ')[2]}",
        )
    return offered


@dataclass
class _Exporter:
    """One format's way from the FP32 conversion up the ladder; the conversion is made when first needed."""

    backend: Backend
    order: _Order
    work: Path

    @property
    def source(self) -> ExportSource:
        return self.order.source

    @property
    def request(self) -> ExportRequest:
        return self.order.request

    def climb(self, precision: Precision) -> tuple[tuple[str, ...], tuple[Attempt, ...]]:
        """Returns the artifact's name on the ladder of ``precision`` that is taken, and every attempt.

        It is the first that is proven and accepted, or, where candidates are measured, the fastest of all of these. A
        tuned variant that was measured to pay follows it.
        """
        attempts: list[Attempt] = []
        held: list[tuple[float, Rung, _Candidate]] = []
        for number, rung in enumerate(self._tries(precision)):
            name = f"{self.backend.format}-{rung.precision}"
            if self._kept(name):
                return tuple(item for item in (name, name + TUNED) if self._kept(item)), tuple(attempts)
            attempt, candidate = self._try(rung, self.work / f"{precision}-{number}")
            if candidate is not None and self.request.measure is not None:
                attempt = attempt.model_copy(update={"p95_ms": self._measure(rung, candidate)})
            attempts.append(attempt)
            if candidate is None:
                logger.warning("%s refused: %s", attempt.rung, attempt.reason)
                continue
            held.append((attempt.p95_ms or 0.0, rung, candidate))
            if self.request.measure is None:
                break
        if held:
            _, rung, candidate = min(held, key=lambda item: item[0])
            # What holds too few integers to be called INT8 is not called so in its name either.
            called = candidate.precision if rung.mixed else rung.precision
            target = self.order.staging / f"{self.backend.format}-{called}"
            variant = self._tuned(rung, candidate, attempts)
            made = [self._bundle(rung, candidate, tuple(attempts), target).name]
            if variant is not None:
                tuned = target.with_name(target.name + TUNED)
                made.append(self._bundle(rung, variant, tuple(attempts), tuned).name)
            return tuple(made), tuple(attempts)
        tried = "; ".join(f"{attempt.rung}: {attempt.reason}" for attempt in attempts)
        raise AcceptanceError(
            f"no {self.backend.format} file of {precision} or a safer precision stays within "
            f"{self.request.plan.max_drop_points} points of the checkpoint ({tried})",
            remedy="allow a larger max_drop_points, or export fp32",
        )

    def _tries(self, precision: Precision) -> Iterator[Rung]:
        """Yields the ladder of a precision; a mixed try becomes several, found when they are asked for."""
        request, plan, ladder = self.request, self.request.plan, self.request.ladder
        if self.backend.simulated and request.device is not None and request.device.hexagon is not None:
            yield from npu_rungs(precision, plan, request.device.hexagon.precisions)
            return
        if self.backend.format == "tensorrt":  # knows fixed ranges only
            plan = plan.model_copy(update={"method": "static"})
            ladder = tuple(step for step in ladder if step != "int8-dynamic")
        for rung in rungs(precision, plan, ladder, start=request.start, baseline=request.measure is not None):
            if not rung.mixed:
                yield rung
                continue
            for refined in refinements(rung.plan, self.source.sensitivities(request, rung.plan)):
                kept = len(refined.policy) - len(rung.plan.policy)
                yield rung.model_copy(update={"plan": refined, "name": f"{rung.name}, {kept} in fp16"})

    def _try(self, rung: Rung, folder: Path) -> tuple[Attempt, _Candidate | None]:
        """Makes and judges one candidate; None where it is refused.

        Raises:
            CompressorError: what is wrong whichever rung is tried, and anything at all where there is only this one.
        """
        alone = self.request.plan.max_drop_points is None
        if refusal := self._refusal(rung):
            if alone:
                raise UsageError(f"{self.backend.format} {rung.name}: {refusal[0]}", remedy=refusal[1])
            return self._attempt(rung, refusal[0]), None
        try:
            candidate = self._make(rung, folder)
        except (ParityError, StageError) as error:
            if alone or not (self.work / "fp32").is_dir():
                raise
            return self._attempt(rung, error.message), None
        attempt = self._judge(rung, candidate)
        return attempt, candidate if attempt.accepted else None

    def _refusal(self, rung: Rung) -> tuple[str, str] | None:
        """Returns why a rung is not even tried, and what to do about it."""
        if not self.backend.offers(rung.precision):
            return f"there is no {self.backend.format} file of {rung.precision}", "choose another format"
        device = self.request.device
        if device is not None and (rule := device.refusal(self.backend.format, rung.precision)):
            return f"not on {device.name}: {rule.reason}", f"use {rule.instead}"
        static = rung.precision == "int8" and rung.plan.method == "static"
        if static and not self.request.calibration_texts:
            return "static INT8 needs text to find ranges on, and none was given", "add --calibrate FILE"
        return None

    def _measure(self, rung: Rung, candidate: _Candidate) -> float:
        """Returns the time of a candidate in the form in which it would be shipped."""
        if self.request.measure is None:
            return 0.0
        return self.request.measure(self._bundle(rung, candidate, (), self.work / f"{candidate.folder.name}-measured"))

    def _tuned(self, rung: Rung, candidate: _Candidate, attempts: list[Attempt]) -> _Candidate | None:
        """Returns the fused form of an ONNX file where it was measured to pay; adds what was found to ``attempts``."""
        if not self.request.tune or self.backend.format != "onnx":
            return None
        from export.onnx.tune import fuse, interleaved_ratio, judge

        folder = candidate.folder.with_name(f"{candidate.folder.name}{TUNED}")
        folder.mkdir()
        config: Any = self.source.model.config
        adapter = adapter_for(config)
        try:
            fusion = fuse(
                candidate.folder / self.backend.model_file, folder / self.backend.model_file,
                layers=adapter.num_layers(config), heads=adapter.num_heads(config), hidden=adapter.hidden_size(config),
            )  # fmt: skip
            variant = self._prove(folder, rung.precision, rung.plan)
            measure = self.request.tune_ratio or interleaved_ratio
            ratio = measure(variant.predictor.predictors[0], candidate.predictor.predictors[0], self.source.cases)
            accepted, reason = judge(fusion, ratio)
        except (ParityError, StageError) as error:
            variant, accepted, reason = None, False, f"rolled back: {error.message}"
        fused = rung.model_copy(update={"name": f"{rung.name}, fused by ONNX Runtime"})
        attempts.append(self._attempt(fused, reason, accepted=accepted))
        return variant if accepted else None

    def _attempt(self, rung: Rung, reason: str, *, accepted: bool = False, **found: float) -> Attempt:
        return Attempt(
            rung=f"{self.backend.format} {rung.name}",
            precision=rung.precision,
            accepted=accepted,
            reason=reason,
            **found,
        )

    def _kept(self, name: str) -> bool:
        """Returns whether a whole artifact of this name is already there."""
        for place in (self.order.staging, self.order.output):
            try:
                Artifact.load(place / name)
                return True
            except ArtifactError:
                continue
        return False

    def _fp32(self) -> Path:
        """Converts on first use, or takes the conversion from the cache; proves the float file either way."""
        folder = self.work / "fp32"
        if not folder.is_dir():
            # It gets its name when it is proven: a try that fails here must not leave a file for the next one.
            unproven = Path(tempfile.mkdtemp(prefix="unproven-", dir=self.work))
            cache, key = self.order.cache, ""
            if cache is not None:
                key = conversion_key(self.source.checkpoint.hash, self.source.spec, self.backend)
            taken = cache is not None and cache.fetch(key, unproven)
            if not taken:
                self.backend.convert(self.source.model, self.source.spec, unproven)
            self._prove(unproven, "fp32", self.request.plan)
            if cache is not None and not taken:
                cache.store(key, unproven)
            unproven.rename(folder)
        return folder

    def _prove(self, folder: Path, precision: Precision, plan: QuantizationPlan) -> _Candidate:
        statistics = self.backend.inspect(folder / self.backend.model_file)
        name = f"{self.request.name} as {self.backend.format} {precision}"
        # A policy that leaves modules in a safer precision, or measured ranges that do, make a mixed file, and it is
        # called so.
        mixed = statistics.precision == "mixed" and (len(plan.policy) > 1 or precision == "fp16")
        if statistics.precision != precision and not mixed:
            raise StageError(
                f"{name}: the file holds {statistics.precision} ({statistics.gemm_types}); expected {precision}",
                remedy="choose another precision, or report this model",
            )
        signatures = self.backend.signatures(folder)
        io = self.source.io(signatures, dynamic_lengths=self.backend.dynamic_lengths)
        predictors = open_predictors(self.backend, folder, io, threads=self.request.threads)
        parity = compare(
            self.source.cases, predictors[0], precision, text=self.request.parity_source,
            simulated=self.backend.simulated, task=self.source.spec.task,
        )  # fmt: skip
        require_parity(parity, name)
        predictor = TextPredictor(self.source.encoder, io, *predictors)
        return _Candidate(folder, statistics.precision, io, parity, predictor, self.source.labels)

    def _make(self, rung: Rung, folder: Path) -> _Candidate:
        source = self._fp32()
        folder.mkdir()
        self.backend.reduce(
            source, folder, rung.precision, rung.plan, self.source.calibration(self.request, rung.precision)
        )
        return self._prove(folder, rung.precision, rung.plan)

    def _judge(self, rung: Rung, candidate: _Candidate) -> Attempt:
        split, reference = self.request.selection, self.source.selection
        if rung.precision == "fp32":
            return self._attempt(rung, "parity holds: the same answers as PyTorch", accepted=True)
        if split is None or reference is None:
            return self._attempt(rung, "parity holds; no labelled text to judge the task on", accepted=True)
        score = candidate.score(split)
        drop, allowed = judge_drop(score.value, reference.value, rung.plan)
        limit = rung.plan.max_drop_points
        reason = f"{drop:+.2f} points lost on {len(split)} sentences"
        reason += ", simulated" if self.backend.simulated else ""
        reason += "" if limit is None else f", {limit:.2f} allowed"
        return self._attempt(
            rung, reason, accepted=allowed, value=score.value, drop_points=drop,
            **_known(expected_calibration_error=score.expected_calibration_error),
        )  # fmt: skip

    def _bundle(self, rung: Rung, candidate: _Candidate, attempts: tuple[Attempt, ...], target: Path) -> Artifact:
        source, request, backend = self.source, self.request, self.backend
        with new_folder(target, "artifact") as folder:
            for file in candidate.folder.iterdir():
                _link(file, folder / file.name)
            facts = backend.finish(folder, source.spec, rung.precision)
            model_files = tuple(sorted(path.name for path in folder.glob(backend.model_pattern)))
            write_companions(folder, source.checkpoint, source.labels, candidate.io, candidate.parity)
            manifest = Manifest(
                format=backend.format,
                precision=candidate.precision,
                compute_precision=COMPUTE_PRECISION.get((backend.format, rung.precision), "fp32"),
                method=_method(backend.format, rung),
                model_file=backend.model_file,
                model_files=model_files,
                statistics=backend.inspect(folder / backend.model_file),
                source={"name": request.name, "checkpoint": source.checkpoint.hash},
                reference=self._reference(candidate),
                simulated=backend.simulated,
                target=_json(folder / TARGET),
                placement=Placement.model_validate(placed) if (placed := _json(folder / PLACEMENT)) else None,
                attempts=tuple(attempt.model_dump(mode="json") for attempt in attempts),
                rebuild={
                    "to": backend.format,
                    "precision": rung.precision,
                    "lengths": list(source.spec.lengths),
                    "plan": rung.plan.model_dump(mode="json"),
                    **({"device": request.device.name} if backend.simulated and request.device else {}),
                    **({"tune": True} if target.name.endswith(TUNED) else {}),
                },
                versions=versions(),
                machine=machine(),
                notes=tuple(f"{name}: {value}" for name, value in facts.items()),
                files={},
            )
            write_card(folder, manifest, candidate.io, candidate.parity, source.labels)
            write_manifest(folder, manifest)
        return Artifact.load(target)

    def _reference(self, candidate: _Candidate) -> dict[str, float]:
        """Metrics on the report split: of the artifact itself, the checkpoint it came from, and the trained teacher."""
        split, checkpoint = self.request.report, self.source.report
        if split is None or checkpoint is None:
            return {}
        score = candidate.score(split)
        teacher = {} if self.request.teacher is None else {"teacher": self.request.teacher.value}
        calibration = _known(
            checkpoint_ece=checkpoint.expected_calibration_error, artifact_ece=score.expected_calibration_error
        )
        values = {"checkpoint": checkpoint.value, "artifact": score.value, "examples": float(len(split))}
        return {**teacher, **values, **calibration}


def _known(**values: float | None) -> dict[str, float]:
    """Returns the values that a task has; only one label a text has a calibration error."""
    return {name: value for name, value in values.items() if value is not None}


def _method(format_name: Format, rung: Rung) -> str | None:
    """How ranges of activations are found; None where none are fixed. NPUs know fixed ranges only."""
    if rung.precision in ("w8a8", "w8a16", "mixed") and format_name == "onnx-qnn":
        return "static"
    return rung.plan.method if rung.precision in ("int8", "int4") else None


@dataclass(frozen=True)
class _Candidate:
    """A converted file that kept parity."""

    folder: Path
    precision: Precision
    """As found in the file."""
    io: IOSpec
    parity: Parity
    predictor: TextPredictor
    labels: tuple[str, ...] = ()
    scores: dict[Split, Evaluation] = field(default_factory=dict)

    def score(self, split: Split) -> Evaluation:
        """Returns the task metrics on a split, run once."""
        if split not in self.scores:
            self.scores[split] = _score(self.predictor, split, self.labels)
        return self.scores[split]


def _link(file: Path, target: Path) -> None:
    """Puts a file in a second place: a candidate that is measured is bundled twice, and large models are not copied."""
    try:
        os.link(file, target)
    except OSError:  # a file system without hard links
        shutil.copyfile(file, target)


def _json(path: Path) -> dict[str, Any]:
    """Returns what a format compiled ahead of time left beside its files; nothing where it left none."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def _score(predictor: TextPredictor, split: Split, labels: tuple[str, ...]) -> Evaluation:
    head = HEADS[predictor.io.task]
    return head.evaluate(predictor.run(head.texts(split)), split, predictor.encoder, labels)
