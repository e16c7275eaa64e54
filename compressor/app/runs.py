"""``run``: the pipeline, then the verdict on ``accept``, then the report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import compressor.app.stages  # noqa: F401  registers the stages
from benchmarks.budget import Budget
from benchmarks.gate import SHARES
from benchmarks.gate import gate as judge_all
from benchmarks.report import write_report
from benchmarks.report.data import ReportData
from compressor import pipeline
from compressor.app.inputs import read_inputs
from compressor.app.reporting import report_data
from compressor.core.artifact import Artifact
from compressor.core.folders import ensure_ours, write_marker
from compressor.core.measurement import Measurement
from compressor.core.verdict import EXIT_CODES, Verdict
from compressor.pipeline import Listener, RunResult
from compressor.recipe import Accept, Recipe, load_recipe


@dataclass(frozen=True)
class Outcome:
    """A finished run: where it is, what it says, how it was judged."""

    folder: Path
    result: RunResult
    report: ReportData
    verdict: Verdict | None
    """None where the recipe sets no limit, or the run stopped before there were artifacts."""

    @property
    def exit_code(self) -> int:
        """The process exit code: the verdict's, or 0 where nothing was to be judged."""
        return 0 if self.verdict is None else EXIT_CODES[self.verdict.verdict]

    def as_dict(self) -> dict[str, Any]:
        """Returns what ``run --json`` prints: the report, with the folder and the exit code."""
        return {"folder": str(self.folder), "exit_code": self.exit_code, **self.report.model_dump(mode="json")}


def default_folder(recipe: Recipe) -> Path:
    """Returns ``runs/<recipe's name>``."""
    return Path("runs") / recipe.name


def run(
    recipe: str | Path,
    output: Path | None = None,
    *,
    overrides: tuple[str, ...] = (),
    from_stage: str | None = None,
    until: str | None = None,
    force: bool = False,
    listener: Listener | None = None,
) -> Outcome:
    """Walks the whole road of a recipe.

    Args:
        recipe: the YAML file.
        output: the run folder; default ``runs/<recipe's name>``.
        overrides: settings such as ``data.dir=my/data``.
        from_stage: id of the stage to do again, with all after it.
        until: id of the last stage to do.
        force: write into a folder that is not ours, and do everything again.
        listener: hooks of a front end.

    Raises:
        CompressorError: whatever is wrong with recipe, data, teacher or folder, or is found broken on the way.
    """
    loaded = load_recipe(Path(recipe), overrides)
    folder = Path(output) if output is not None else default_folder(loaded)
    ensure_ours(folder, "run", force=force)
    folder.mkdir(parents=True, exist_ok=True)
    write_marker(folder, "run")
    inputs = read_inputs(loaded, folder / "demo-data")
    result = pipeline.run(loaded, inputs, folder, from_stage=from_stage, until=until, force=force, listener=listener)
    verdict = _judge(loaded.accept, result)
    report = report_data(result, verdict, created=datetime.now(UTC).isoformat(timespec="seconds"))
    write_report(folder, report)
    return Outcome(folder, result, report, verdict)


def _judge(accept: Accept, result: RunResult) -> Verdict | None:
    """Judges every artifact on every device it was measured on; what was measured nowhere, on its size and accuracy."""
    limits, artifacts = accept.limits(), result.context.artifacts
    if not limits or not artifacts:
        return None
    timed = {name for name in limits if name in SHARES}
    untimed = {name: value for name, value in limits.items() if name not in timed}
    checks = []
    for device, measured in _by_device(result.context.measurements).items():
        names = {item.subject for item in measured}
        chosen = [artifact for artifact in artifacts if artifact.name in names]
        checks += _checks(accept.artifacts, device, limits, chosen, measured)
    seen = {item.subject for item in result.context.measurements}
    rest = [artifact for artifact in artifacts if artifact.name not in seen]
    checks += _checks(accept.artifacts, "not run on hardware", untimed, rest, [])
    return Verdict.of(tuple(checks)) if checks else None


def _checks(
    pattern: str, device: str, limits: dict[str, float], artifacts: list[Artifact], measured: list[Measurement]
) -> list[Any]:
    if not limits or not artifacts:
        return []
    budget = Budget(device=device, artifact=pattern, **limits)
    matching = [artifact for artifact in artifacts if fnmatchcase(artifact.name, pattern)]
    return list(judge_all(matching, measured, [budget]).checks) if matching else []


def _by_device(measurements: tuple[Measurement, ...]) -> dict[str, list[Measurement]]:
    found: dict[str, list[Measurement]] = {}
    for item in measurements:
        found.setdefault(item.device.partition("@")[0], []).append(item)
    return found
