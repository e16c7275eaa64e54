"""``run``: the pipeline, then the verdict on ``accept``, then the report."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import compressor.app.stages  # noqa: F401  registers the stages
from benchmarks.budget import Budget
from benchmarks.gate import gate as judge_all
from benchmarks.report import write_report
from benchmarks.report.data import ReportData
from compressor import pipeline
from compressor.app.inputs import read_inputs
from compressor.app.legality import check_legality
from compressor.app.reporting import report_data
from compressor.core.errors import RecipeError
from compressor.core.limits import MEASURED
from compressor.core.verdict import EXIT_CODES, Check, Verdict
from compressor.pipeline import Listener, RunResult
from compressor.processes import processes
from compressor.recipe import Accept, Recipe, load_recipe
from compressor.stage import stage_type


@dataclass(frozen=True)
class RunOutcome:
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
) -> RunOutcome:
    """Walks the whole road of a recipe.

    Where a launcher started several processes, each calls this; all but the main one return after the training, with
    what was done until then.

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
    check_accept(loaded)
    team = processes()
    with team.main_first():
        if team.is_main:
            pipeline.open_run_folder(folder, force=force)
        inputs = read_inputs(loaded, folder / "demo-data")
    check_legality(loaded, inputs)
    result = pipeline.run(loaded, inputs, folder, from_stage=from_stage, until=until, force=force, listener=listener)
    verdict = _judge(loaded.accept, result) if team.is_main else None
    report = report_data(result, verdict, created=datetime.now(UTC).isoformat(timespec="seconds"))
    if team.is_main:
        write_report(folder, report)
    return RunOutcome(folder, result, report, verdict)


def check_accept(recipe: Recipe) -> None:
    """Refuses limits that nothing in the recipe could ever be held to: they must not read as kept.

    Raises:
        RecipeError: limits without an export stage, or limits on times without a benchmark stage.
    """
    produced = {stage_type(stage.name).produces for stage in recipe.stages}
    limits = recipe.accept.limits()
    if limits and "artifacts" not in produced:
        raise RecipeError("'accept' sets limits and no stage makes artifacts", remedy="add an export stage")
    timed = sorted(set(limits) & set(MEASURED))
    if timed and "measurements" not in produced:
        raise RecipeError(f"'accept' limits {', '.join(timed)} and no stage measures", remedy="add a benchmark stage")


def _judge(accept: Accept, result: RunResult) -> Verdict | None:
    """Judges every artifact on each device it was measured on; one that was measured nowhere, on size and accuracy."""
    limits, context = accept.limits(), result.context
    if not limits or not context.artifacts:
        return None
    matching = [artifact for artifact in context.artifacts if fnmatchcase(artifact.name, accept.artifacts)]
    if not matching:
        names = ", ".join(artifact.name for artifact in context.artifacts)
        raise RecipeError(f"accept.artifacts '{accept.artifacts}' matches none of {names}", remedy="mend the pattern")
    devices = list(dict.fromkeys(item.device.partition("@")[0] for item in context.measurements))
    unmeasured = {name: value for name, value in limits.items() if name not in MEASURED}
    checks: list[Check] = []
    for artifact in matching:
        measured = [item for item in context.measurements if item.subject == artifact.name]
        for device in [name for name in devices if any(item.device.startswith(f"{name}@") for item in measured)]:
            checks += judge_all([artifact], measured, [Budget.model_validate({"device": device, **limits})]).checks
        if not measured and unmeasured:
            place = (
                "simulated; not run on hardware"
                if artifact.manifest.simulated
                else "not run on hardware"
                if artifact.manifest.format == "tensorrt"
                else "not measured"
            )
            checks += judge_all([artifact], [], [Budget.model_validate({"device": place, **unmeasured})]).checks
    return Verdict.of(tuple(checks)) if checks else None
