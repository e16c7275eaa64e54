"""``plan``: what a run would do, with the arithmetic of parameters and bytes, and what a device cannot run."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import compressor.app.stages  # noqa: F401  registers the stages
from compressor import pipeline
from compressor.app.benchmark import BenchmarkConfig
from compressor.app.inputs import read_inputs
from compressor.app.runs import check_accept, default_folder
from compressor.core.artifact import Format, Precision
from compressor.core.schema import Record
from compressor.models import load_config
from compressor.recipe import Recipe, load_recipe
from compressor.shapes import parameters_of, read_shape, with_shape
from devices.legality import legality
from devices.profiles import parse_device
from export.backend import backend_for
from export.stage import ExportConfig

BYTES_PER_PARAMETER: dict[Precision, float] = {"fp32": 4, "fp16": 2, "int8": 1, "int4": 0.5}


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
    config = with_shape(load_config(inputs.teacher), read_shape(inputs.teacher))
    config.num_labels = len(inputs.data.label_names)
    stages: list[StageForecast] = []
    artifacts: dict[str, ArtifactForecast] = {}
    for entry, known in zip(loaded.stages, pipeline.plan(loaded, inputs, folder), strict=True):
        config = entry.build().forecast(config)
        parameters = parameters_of(config)
        settings = entry.config.model_dump(mode="json", exclude_unset=True)
        stages.append(
            StageForecast(id=entry.id, name=entry.name, cached=known.cached, parameters=parameters, settings=settings)
        )
        if isinstance(entry.config, ExportConfig):
            for kind, precision in _exports(entry.config):
                name = f"{kind}-{precision}"
                size = int(parameters * BYTES_PER_PARAMETER[precision])
                artifacts[name] = ArtifactForecast(name=name, estimated_bytes=size)
    return Plan(
        folder=str(folder), stages=tuple(stages), artifacts=tuple(artifacts.values()), refused=_refusals(loaded)
    )


def _exports(config: ExportConfig) -> list[tuple[Format, Precision]]:
    return [(kind, item) for kind in config.to for item in config.precisions if backend_for(kind).offers(item)]


def _refusals(recipe: Recipe) -> tuple[Refusal, ...]:
    exports = [
        pair for entry in recipe.stages if isinstance(entry.config, ExportConfig) for pair in _exports(entry.config)
    ]
    devices = [
        name for entry in recipe.stages if isinstance(entry.config, BenchmarkConfig) for name in entry.config.devices
    ]
    found: dict[tuple[str, str], Refusal] = {}
    for name in devices:
        profile = parse_device(name).profile
        for kind, precision in exports:
            rule = legality(profile, kind, precision)
            if rule is None:
                continue
            what = kind if rule.precision is None else f"{kind} {precision}"
            found[name, what] = Refusal(device=name, what=what, reason=rule.reason, instead=rule.instead)
    return tuple(found.values())
