"""One format from the FP32 conversion up its ladder: convert once, prove, reduce, prove, judge on the task, bundle."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compressor.core.artifact import (
    Artifact,
    Format,
    Precision,
)
from compressor.core.errors import AcceptanceError, ArtifactError, ParityError, StageError, UsageError
from compressor.families import adapter_for
from compressor.quantize.mixed import refinements
from export.assemble import TUNED, assemble
from export.backend import Backend, backend_for
from export.cache import ConversionCache, conversion_key
from export.candidate import Candidate, prove
from export.ladder import Attempt, Rung, judge_drop, npu_rungs, rungs
from export.source import ExportRequest, ExportSource

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Order:
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
class Made:
    """Names of the artifact folders of one format, made or kept, and what was refused on the way."""

    names: tuple[str, ...]
    refused: tuple[Attempt, ...]


@dataclass(frozen=True)
class Step:
    """One precision of a format begins or is done."""

    note: str
    done: bool = False
    finished: tuple[str, ...] = ()
    """Folders of the artifacts that came of it."""


def export_format(order: Order, tell: Callable[[Step], None]) -> Made:
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
            tell(Step(f"{order.format} {precision}"))
            made, attempts = exporter.climb(precision)
            refused += [attempt for attempt in attempts if not attempt.accepted]
            fresh = tuple(name for name in made if name not in names and (order.staging / name).is_dir())
            names += made
            tell(Step(f"{order.format} {precision}", done=True, finished=fresh))
    return Made(tuple(names), tuple(refused))


@dataclass
class _Exporter:
    """One format's way from the FP32 conversion up the ladder; the conversion is made when first needed."""

    backend: Backend
    order: Order
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
        held: list[tuple[float, Rung, Candidate]] = []
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
            made = [assemble(self.backend, self.source, self.request, rung, candidate, tuple(attempts), target).name]
            if variant is not None:
                tuned = target.with_name(target.name + TUNED)
                made.append(
                    assemble(self.backend, self.source, self.request, rung, variant, tuple(attempts), tuned).name
                )
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

    def _try(self, rung: Rung, folder: Path) -> tuple[Attempt, Candidate | None]:
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
        family = self.source.spec.model_type
        if device is not None and (rule := device.refusal(self.backend.format, rung.precision, family=family)):
            return f"not on {device.name}: {rule.reason}", f"use {rule.instead}"
        static = rung.precision == "int8" and rung.plan.method == "static"
        if static and not self.request.calibration_texts:
            return "static INT8 needs text to find ranges on, and none was given", "add --calibrate FILE"
        return None

    def _measure(self, rung: Rung, candidate: Candidate) -> float:
        """Returns the time of a candidate in the form in which it would be shipped."""
        if self.request.measure is None:
            return 0.0
        place = self.work / f"{candidate.folder.name}-measured"
        return self.request.measure(assemble(self.backend, self.source, self.request, rung, candidate, (), place))

    def _tuned(self, rung: Rung, candidate: Candidate, attempts: list[Attempt]) -> Candidate | None:
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
            variant = prove(self.backend, self.source, self.request, folder, rung.precision, rung.plan)
            measure = self.request.tune_ratio or interleaved_ratio
            ratio = measure(variant.predictor.predictors[0], candidate.predictor.predictors[0], self.source.cases)
            accepted, reason = judge(fusion, ratio)
        except (ParityError, StageError) as error:
            variant, accepted, reason = None, False, f"rolled back: {error.message}"
        fused = rung.model_copy(update={"name": f"{rung.name}, fused by ONNX Runtime"})
        attempts.append(self._attempt(fused, reason, accepted=accepted))
        return variant if accepted else None

    def _attempt(self, rung: Rung, reason: str, *, accepted: bool = False, **found: float | None) -> Attempt:
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
            prove(self.backend, self.source, self.request, unproven, "fp32", self.request.plan)
            if cache is not None and not taken:
                cache.store(key, unproven)
            unproven.rename(folder)
        return folder

    def _make(self, rung: Rung, folder: Path) -> Candidate:
        source = self._fp32()
        folder.mkdir()
        self.backend.reduce(
            source, folder, rung.precision, rung.plan, self.source.calibration(self.request, rung.precision)
        )
        return prove(self.backend, self.source, self.request, folder, rung.precision, rung.plan)

    def _judge(self, rung: Rung, candidate: Candidate) -> Attempt:
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
            expected_calibration_error=score.expected_calibration_error,
        )  # fmt: skip
