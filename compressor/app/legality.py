"""A recipe against the devices it names: what they cannot run of this family is said before any stage runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from compressor.app.benchmark import BenchmarkConfig
from compressor.core.artifact import PRECISIONS, Format, Precision
from compressor.core.device import DeviceProfile, Illegal
from compressor.core.errors import IllegalOnDeviceError, UsageError
from compressor.models import load_config
from compressor.pipeline import Inputs
from compressor.quantize.plan import QuantizationPlan
from compressor.quantize.qat import QATConfig
from compressor.quantize.stage import QuantizeConfig
from compressor.recipe import Recipe, StageEntry
from compressor.shapes import read_shape, with_shape
from devices.legality import legality
from devices.profiles import parse_device
from export.backend import backend_for
from export.ladder import npu_rungs, rungs
from export.stage import ExportConfig


@dataclass(frozen=True)
class PlannedExport:
    """What one export stage will be asked for."""

    stage: str
    config: ExportConfig
    family: str
    plan: QuantizationPlan

    @property
    def pairs(self) -> tuple[tuple[Format, Precision], ...]:
        """Formats and precisions that will be tried; a plan for FP16 makes nothing smaller than that."""
        smallest = PRECISIONS.index(self.plan.precision)
        wanted = [it for it in self.config.precisions if it not in PRECISIONS or PRECISIONS.index(it) <= smallest]
        return tuple((kind, item) for kind in self.config.to for item in wanted if backend_for(kind).offers(item))

    def fallbacks(self, kind: Format, precision: Precision, profile: DeviceProfile) -> tuple[Precision, ...]:
        """Returns every precision that the ladder may end at for a requested one."""
        if backend_for(kind).simulated and profile.hexagon is not None:
            return tuple(it.precision for it in npu_rungs(precision, self.plan, profile.hexagon.precisions))
        return tuple(it.precision for it in rungs(precision, self.plan, profile.ladder))


def forecasts(recipe: Recipe, inputs: Inputs) -> Iterator[tuple[StageEntry, Any]]:
    """Yields each stage with the transformers config that a model has after it."""
    config = with_shape(load_config(inputs.teacher), read_shape(inputs.teacher))
    config.num_labels = len(inputs.data.label_names)
    for entry in recipe.stages:
        config = entry.build().forecast(config)
        yield entry, config


def planned_exports(recipe: Recipe, inputs: Inputs) -> tuple[PlannedExport, ...]:
    """Returns the export stages with the family and the plan they will find."""
    found = []
    smallest = QuantizationPlan(precision=PRECISIONS[-1])
    plan = smallest if inputs.teacher.quantization is None else QuantizationPlan.beside(inputs.teacher)
    for entry, config in forecasts(recipe, inputs):
        if isinstance(entry.config, QuantizeConfig | QATConfig):
            limit = entry.config.max_drop_points
            plan = QuantizationPlan(precision=entry.config.precision, max_drop_points=limit)
        elif isinstance(entry.config, ExportConfig):
            limit = entry.config.max_drop_points
            own = plan if limit is None else plan.model_copy(update={"max_drop_points": limit})
            found.append(PlannedExport(entry.id, entry.config, str(config.model_type), own))
        elif entry.build().produces == "checkpoint":
            plan = smallest  # new weights have no plan
    return tuple(found)


def refusals(recipe: Recipe, exports: tuple[PlannedExport, ...]) -> Iterator[tuple[str, Format, Illegal]]:
    """Yields (device, format, rule) for everything exported that a device named in the recipe cannot run."""
    for export in exports:
        own = () if export.config.device is None else (export.config.device,)
        for name in dict.fromkeys((*_measured_on(recipe), *own)):
            profile = parse_device(name).profile
            for kind, precision in export.pairs:
                if rule := legality(profile, kind, precision, family=export.family):
                    yield name, kind, rule


def check_legality(recipe: Recipe, inputs: Inputs) -> None:
    """Refuses, before any stage runs, what an export or a benchmark stage would refuse after all training.

    Raises:
        IllegalOnDeviceError: an export for a device that cannot run it, nor anything the ladder may fall back to.
        UsageError: a benchmark of artifacts none of which its devices run.
    """
    exports = planned_exports(recipe, inputs)
    for export in exports:
        if export.config.device is None:
            continue
        profile = parse_device(export.config.device).profile
        for kind, precision in export.pairs:
            rule = legality(profile, kind, precision, family=export.family)
            tries = export.fallbacks(kind, precision, profile)
            if rule and all(legality(profile, kind, it, family=export.family) for it in tries):
                raise IllegalOnDeviceError(
                    f"{export.stage}: {kind} {precision} of {export.family} on {profile.name}: {rule.reason}",
                    remedy=f"use {rule.instead}",
                )
    devices = _measured_on(recipe)
    made = [(export, pair) for export in exports for pair in export.pairs]
    if (
        devices
        and made
        and not any(
            legality(parse_device(name).profile, kind, it, family=export.family) is None
            for name in devices
            for export, (kind, precision) in made
            for it in export.fallbacks(kind, precision, parse_device(name).profile)
        )
    ):
        what = ", ".join(sorted({f"{kind} {precision}" for _, (kind, precision) in made}))
        raise UsageError(
            f"nothing that is exported ({what}) can be measured on {', '.join(devices)}",
            remedy="export a format the device runs before the benchmark stage",
        )


def _measured_on(recipe: Recipe) -> tuple[str, ...]:
    named = [
        name for entry in recipe.stages if isinstance(entry.config, BenchmarkConfig) for name in entry.config.devices
    ]
    return tuple(dict.fromkeys(named))
