"""Walks a recipe: what is still true is kept, what changed is done again, and a killed run loses nothing finished."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from compressor.core.artifact import Artifact
from compressor.core.checkpoint import Checkpoint
from compressor.core.device import DeviceProfile
from compressor.core.environment import machine, versions
from compressor.core.errors import FolderError, RecipeError, nearest
from compressor.core.folders import MARKER, disk_errors, ensure_ours, new_folder, swap, write_json, write_marker
from compressor.core.hashing import sha256_file, sha256_folder, sha256_json
from compressor.core.latency import LatencySource
from compressor.core.measurement import Measurement
from compressor.data.dataset import TextDataset
from compressor.processes import Processes, processes
from compressor.recipe import Recipe, StageEntry
from compressor.sources import source_hash
from compressor.stage import Context, Produces, Progress, silent, stage_type

logger = logging.getLogger(__name__)

Status = Literal["ran", "cached"]
FOLDERS: dict[Produces, str] = {"checkpoint": "checkpoints", "artifacts": "artifacts", "measurements": "measurements"}


@dataclass(frozen=True)
class StageRecord:
    """What one stage left: its key, the hash of each output, its facts, how long it took."""

    id: str
    name: str
    key: str
    outputs: dict[str, str]
    """Path relative to the run folder → content hash."""
    facts: dict[str, Any]
    seconds: float
    status: Status = "ran"


@dataclass(frozen=True)
class PlannedStage:
    """One line of a dry run."""

    id: str
    name: str
    key: str
    cached: bool
    config: dict[str, Any]


@dataclass(frozen=True)
class RunResult:
    """A finished (or, with ``until``, partly finished) run."""

    folder: Path
    recipe: Recipe
    records: tuple[StageRecord, ...]
    context: Context


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a run starts from, read before any stage."""

    teacher: Checkpoint
    data: TextDataset
    threads: int
    profiles: Callable[[str], DeviceProfile] | None = None
    """Returns the profile of a named device; the front end knows them."""
    latency: LatencySource | None = None
    """Returns a device's latency model; the front end can measure."""


@dataclass
class Listener:
    """Hooks through which a front end shows what happens; silent unless replaced."""

    stage_started: Callable[[StageEntry], None] = lambda entry: None
    stage_finished: Callable[[StageEntry, StageRecord], None] = lambda entry, record: None
    progress: Callable[[StageEntry], Progress] = lambda entry: silent


def stage_key(entry: StageEntry, recipe: Recipe, inputs: Inputs, upstream: tuple[str, ...]) -> str:
    """Returns the cache key of a stage: settings, content of the inputs, seed, versions and our own source.

    ``upstream`` holds the keys of the earlier stages; with the teacher's and the data's content hash they determine
    every input, so that a key is known before anything ran.
    """
    stage = entry.build()
    parts: dict[str, Any] = {
        "name": entry.name,
        "config": entry.config.model_dump(mode="json"),
        "teacher": inputs.teacher.hash,
        "data": inputs.data.hash,
        "seed": recipe.seed,
        "versions": versions(stage.packages),
        "source": source_hash(type(stage).__module__),
        "upstream": upstream,
    }
    if files := [path for path in stage.files() if path.exists()]:
        parts["files"] = [_content_hash(path) for path in files]
    if stage.produces == "measurements":
        parts["machine"] = machine()
    return sha256_json(parts)


def plan(recipe: Recipe, inputs: Inputs, folder: Path) -> tuple[PlannedStage, ...]:
    """Returns what a run would do, without doing it."""
    planned: list[PlannedStage] = []
    upstream: tuple[str, ...] = ()
    for entry in recipe.stages:
        key = stage_key(entry, recipe, inputs, upstream)
        cached = _read_record(folder, entry, key) is not None
        planned.append(PlannedStage(entry.id, entry.name, key, cached, entry.config.model_dump(mode="json")))
        upstream = (*upstream, key)
    return tuple(planned)


def run(
    recipe: Recipe,
    inputs: Inputs,
    folder: Path,
    *,
    from_stage: str | None = None,
    until: str | None = None,
    force: bool = False,
    listener: Listener | None = None,
) -> RunResult:
    """Runs a recipe into ``folder``; stages whose key and outputs still hold are kept.

    Where a launcher started several processes, each calls this. The main one does everything; the others train along
    in the stages that train, write nothing, and return after the last of those stages.

    Args:
        recipe: the checked recipe.
        inputs: teacher, data and threads.
        folder: the run folder; created where it does not exist.
        from_stage: id of a stage that is done again with everything after it.
        until: id of the last stage to do.
        force: write into a folder that is not ours, and do every stage again.
        listener: hooks of a front end.

    Raises:
        FolderError: ``folder`` is not ours, or the disk is full.
        RecipeError: ``from_stage`` or ``until`` is no stage of the recipe.
        CompressorError: whatever a stage refuses or finds broken.
    """
    listener = listener or Listener()
    ids = [entry.id for entry in recipe.stages]
    for name in filter(None, (from_stage, until)):
        if name not in ids:
            raise RecipeError(f"'{name}' is no stage of this recipe", remedy=nearest(name, ids))
    team = processes()
    check(recipe, inputs)
    if team.is_main:
        open_run_folder(folder, force=force)
    context = Context(
        teacher=inputs.teacher, current=inputs.teacher, data=inputs.data, seed=recipe.seed, threads=inputs.threads,
        workdir=folder, scratch=folder, profiles=inputs.profiles, latency=inputs.latency,
    )  # fmt: skip
    records: list[StageRecord] = []
    fresh = force
    together = _trained_together(recipe, until)
    with _locked(folder) if team.is_main else nullcontext(), _run_log(folder) if team.is_main else nullcontext():
        if team.is_main:
            _forget_stages(folder, keep=ids)
        for number, entry in enumerate(recipe.stages if team.is_main else recipe.stages[:together]):
            if number == together:
                team.leave()
                team = Processes()
            key = stage_key(entry, recipe, inputs, tuple(record.key for record in records))
            fresh = fresh or entry.id == from_stage
            record = None if fresh or not team.is_main else _read_record(folder, entry, key)
            if team.share(record is None):
                listener.stage_started(entry)
                earlier = _recorded(folder, entry)
                if team.is_main:
                    record = _run_stage(entry, key, context, folder, listener.progress(entry), team)
                elif stage_type(entry.name).trains:
                    _train_along(entry, key, context, folder, team)
                # A result that was lost and came out differently makes everything after it stale.
                fresh = fresh or bool(record and earlier and earlier.key == key and earlier.outputs != record.outputs)
            record = _known(team.share(record))
            records.append(record)
            context = _advance(context, entry, record, folder)
            listener.stage_finished(entry, record)
            facts = {"stage": entry.id, "seconds": record.seconds}
            logger.info("%s: %s", entry.id, record.status, extra={"facts": facts})
            if entry.id == until:
                break
    team.leave()
    if not team.is_main:
        return RunResult(folder, recipe, tuple(records), context)
    _point(folder / "teacher", (context.reference or context.teacher).path)
    _point(folder / "student", context.current.path)
    return RunResult(folder, recipe, tuple(records), context)


def check(recipe: Recipe, inputs: Inputs) -> None:
    """Asks every stage for what can be known before the first one runs; raises its named error."""
    for number, entry in enumerate(recipe.stages):
        entry.build().check(inputs.teacher, tuple(item.id for item in recipe.stages[:number]))


def open_run_folder(folder: Path, *, force: bool = False) -> None:
    """Makes the run folder, or takes an earlier one.

    Raises:
        FolderError: it is not ours, or cannot be written.
    """
    ensure_ours(folder, "run", force=force)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_marker(folder, "run")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps a second run out of the same folder while the block runs."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            yield
    except Timeout as error:
        raise FolderError(
            f"another run is working in {folder}", remedy="wait for it, or name another output folder"
        ) from error


def _trained_together(recipe: Recipe, until: str | None) -> int:
    """Returns how many stages, from the first on, end with the last one that trains."""
    ids = [entry.id for entry in recipe.stages]
    last = len(ids) if until is None else ids.index(until) + 1
    return max(
        (number + 1 for number, entry in enumerate(recipe.stages[:last]) if stage_type(entry.name).trains), default=0
    )


def _train_along(entry: StageEntry, key: str, context: Context, folder: Path, team: Processes) -> None:
    """Does a stage beside the main process: the same steps on another share of each batch, for no result of its own."""
    scratch = _scratch(folder, entry, key)
    with tempfile.TemporaryDirectory() as output:
        entry.build().run(replace(context, scratch=scratch), Path(output))
    team.share(None)  # nobody is in the folder of training any more


def _scratch(folder: Path, entry: StageEntry, key: str) -> Path:
    scratch = folder / ".work" / f"{entry.id}-{key[:16]}"
    with disk_errors(scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def _run_stage(
    entry: StageEntry, key: str, context: Context, folder: Path, progress: Progress, team: Processes
) -> StageRecord:
    stage = entry.build()
    work = folder / ".work"
    scratch = _scratch(folder, entry, key)
    for abandoned in work.glob(f"{entry.id}-*"):
        if abandoned != scratch:
            shutil.rmtree(abandoned, ignore_errors=True)
    context = replace(context, scratch=scratch, progress=progress)
    stage.requires(context)
    started = time.monotonic()
    with new_folder(work / f"{entry.id}.output", "result", key=key, force=True) as output:
        facts = stage.run(context, output)
        if stage.trains:
            team.share(None)
        stage.ensures(context, output)
    outputs = _publish(stage.produces, entry.id, work / f"{entry.id}.output", folder, key)
    record = StageRecord(entry.id, entry.name, key, outputs, facts, round(time.monotonic() - started, 3))
    path = folder / "stages" / f"{entry.id}.json"
    path.parent.mkdir(exist_ok=True)
    _remove_stale(path, outputs, folder)
    write_json(path, {name: value for name, value in vars(record).items() if name != "status"})
    shutil.rmtree(scratch, ignore_errors=True)
    return record


def _known(record: StageRecord | None) -> StageRecord:
    if record is None:
        raise TypeError("a stage that was done has a record")
    return record


def _publish(produces: Produces, stage_id: str, output: Path, folder: Path, key: str) -> dict[str, str]:
    """Moves the finished results from the work folder to where the run keeps them, each in one rename."""
    place = folder / FOLDERS[produces]
    place.mkdir(exist_ok=True)
    (output / MARKER).unlink()
    if produces == "checkpoint":
        moves = [(output, place / stage_id)]
        write_marker(output, "checkpoint", key)
    else:
        moves = [(item, place / item.name) for item in sorted(output.iterdir())]
    for source, target in moves:
        swap(source, target)
    shutil.rmtree(output, ignore_errors=True)
    return {str(target.relative_to(folder)): _content_hash(target) for _, target in moves}


def _content_hash(path: Path) -> str:
    return sha256_folder(path, exclude={MARKER}) if path.is_dir() else sha256_file(path)


def _forget_stages(folder: Path, *, keep: list[str]) -> None:
    """Removes the results of stages that the recipe no longer has."""
    for record in (folder / "stages").glob("*.json"):
        if record.stem not in keep:
            _remove_stale(record, {}, folder)
            record.unlink()


def _remove_stale(record: Path, outputs: dict[str, str], folder: Path) -> None:
    """Removes what an earlier run of the same stage left and this one no longer makes."""
    try:
        earlier = json.loads(record.read_text(encoding="utf-8"))["outputs"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    for name in set(earlier) - set(outputs):
        path = folder / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _recorded(folder: Path, entry: StageEntry) -> StageRecord | None:
    """Returns what an earlier run wrote down of a stage, whatever its key."""
    try:
        value = json.loads((folder / "stages" / f"{entry.id}.json").read_text(encoding="utf-8"))
        return StageRecord(**value, status="cached")
    except (OSError, ValueError, TypeError):
        return None


def _read_record(folder: Path, entry: StageEntry, key: str) -> StageRecord | None:
    """Returns the record of an earlier run if its key is the same and every output is still what it was."""
    record = _recorded(folder, entry)
    if record is None or record.key != key:
        return None
    for name, expected in record.outputs.items():
        path = folder / name
        if not path.exists() or _content_hash(path) != expected:
            return None
    return record


def _advance(context: Context, entry: StageEntry, record: StageRecord, folder: Path) -> Context:
    paths = [folder / path for path in record.outputs]
    stage = stage_type(entry.name)
    produces = stage.produces
    if produces == "checkpoint":
        checkpoint = Checkpoint.open(paths[0])
        reference = context.reference or (checkpoint if stage.makes_reference and context.untrained else None)
        known = {**context.checkpoints, entry.id: checkpoint}
        untrained = context.untrained and stage.prepares_reference
        return replace(context, current=checkpoint, checkpoints=known, reference=reference, untrained=untrained)
    if produces == "artifacts":
        return replace(context, artifacts=(*context.artifacts, *(Artifact.load(path) for path in paths)))
    return replace(context, measurements=(*context.measurements, *(Measurement.load(path) for path in paths)))


def _point(link: Path, target: Path) -> None:
    """Makes ``link`` a relative symbolic link to ``target``, in one rename."""
    temporary = link.with_name(f".{link.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(target, link.parent))
    temporary.replace(link)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {"time": self.formatTime(record), "level": record.levelname, "logger": record.name}
        return json.dumps({**entry, "message": record.getMessage(), **getattr(record, "facts", {})}, default=str)


@contextmanager
def _run_log(folder: Path) -> Iterator[None]:
    """Appends what our loggers say to ``log.jsonl`` while the block runs."""
    handler = logging.FileHandler(folder / "log.jsonl", encoding="utf-8")
    handler.setFormatter(_JsonLines())
    loggers = [logging.getLogger(name) for name in ("compressor", "export", "devices", "benchmarks")]
    for item in loggers:
        item.addHandler(handler)
        item.setLevel(logging.INFO)
    try:
        yield
    finally:
        for item in loggers:
            item.removeHandler(handler)
        handler.close()
