"""``plan``: what a run would do, with the arithmetic of parameters and bytes, and what a device cannot run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import compressor.app.stages  # noqa: F401  registers the stages
from compressor import pipeline
from compressor.app.inputs import read_inputs
from compressor.app.legality import PlannedExport, forecasts, planned_exports, refusals
from compressor.app.runs import check_accept, default_folder
from compressor.core.artifact import Precision
from compressor.core.schema import Record
from compressor.recipe import Recipe, load_recipe
from compressor.shapes import parameters_of

BYTES_PER_PARAMETER: dict[Precision, float] = {
    "fp32": 4, "fp16": 2, "int8": 1, "int4": 0.5, "w8a16": 1, "w8a8": 1, "mixed": 1,
}  # fmt: skip


class StageForecast(Record):
    """One stage of a dry run."""

    id: str
    name: str
    cached: bool
    parameters: int
    """Of the model after the stage, each shared weight once."""
    settings: dict[str, Any]


class ArtifactForecast(Record):
    """One file that would be made."""

    name: str
    estimated_bytes: int
    """Parameters times bytes per parameter: graph, scales and what stays in FP32 come on top."""


class Refusal(Record):
    """What a device cannot run."""

    device: str
    what: str
    reason: str
    instead: str


class Plan(Record):
    """A whole dry run."""

    folder: str
    stages: tuple[StageForecast, ...]
    artifacts: tuple[ArtifactForecast, ...]
    refused: tuple[Refusal, ...]


def plan(recipe: str | Path, output: Path | None = None, *, overrides: tuple[str, ...] = ()) -> Plan:
    """Reads a recipe, its data and its teacher's config, and says what :func:`compressor.run` would do.

    Raises:
        CompressorError: whatever is wrong with the recipe, the data or the teacher.
    """
    loaded = load_recipe(Path(recipe), overrides)
    folder = default_folder(loaded) if output is None else output
    with tempfile.TemporaryDirectory() as demo:
        inputs = read_inputs(loaded, Path(demo))
    pipeline.check(loaded, inputs)
    check_accept(loaded)
    exports = planned_exports(loaded, inputs)
    stages: list[StageForecast] = []
    artifacts: dict[str, ArtifactForecast] = {}
    known_stages = pipeline.plan(loaded, inputs, folder)
    for (entry, config), known in zip(forecasts(loaded, inputs), known_stages, strict=True):
        parameters = parameters_of(config)
        settings = entry.config.model_dump(mode="json", exclude_unset=True)
        stages.append(
            StageForecast(id=entry.id, name=entry.name, cached=known.cached, parameters=parameters, settings=settings)
        )
        for export in exports:
            for kind, precision in export.pairs if export.stage == entry.id else ():
                name = f"{kind}-{precision}"
                size = int(parameters * BYTES_PER_PARAMETER[precision])
                artifacts[name] = ArtifactForecast(name=name, estimated_bytes=size)
    return Plan(
        folder=str(folder), stages=tuple(stages), artifacts=tuple(artifacts.values()), refused=_refused(loaded, exports)
    )


def _refused(recipe: Recipe, exports: tuple[PlannedExport, ...]) -> tuple[Refusal, ...]:
    found: dict[tuple[str, str], Refusal] = {}
    for name, kind, rule in refusals(recipe, exports):
        what = kind if rule.precision is None else f"{kind} {rule.precision}"
        found[name, what] = Refusal(device=name, what=what, reason=rule.reason, instead=rule.instead)
    return tuple(found.values())
