"""``bench``, ``gate`` and ``devices probe``: times on a device, and what a budget says of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.budget import Budget, load_budgets
from benchmarks.budget_example import budget_example
from benchmarks.gate import matches
from benchmarks.gate_run import GateReport, run_gate
from benchmarks.history import Entry, append, check_store, entry_of
from benchmarks.junit import junit_xml
from benchmarks.looks import describe, plan_looks
from benchmarks.measure import measure, measurement_name
from benchmarks.statistics import LatencySummary, summary
from benchmarks.subject import Subject, bare_subject, subject_of
from benchmarks.summary import markdown_summary
from compressor.app.gate_inputs import hints_for, plan_needs, read_baseline, revision
from compressor.app.inputs import read_texts
from compressor.core.artifact import MANIFEST, Artifact, IOSpec
from compressor.core.errors import UsageError
from compressor.core.folders import check_writable, disk_errors, write_text
from compressor.core.measurement import Measurement
from compressor.core.schema import Record, Text
from compressor.core.verdict import Verdict
from devices.conditions import Conditions, Judgement, judge
from devices.legality import check_legal, check_target, legality
from devices.profiles import DeviceAddress, parse_device
from devices.targets import target_for
from export.backend import backend_for
from export.texts import texts_for

_LOG = logging.getLogger(__name__)
REGRESSION_RUNS = 100
"""At least so many runs stand behind the first ratio to a baseline, and behind a proposed limit."""
PROCESSES = 8


class Probe(Record):
    """A device's fingerprint and condition."""

    device: str
    fingerprint: dict[str, str]
    conditions: Conditions
    judgement: Judgement


def bench(
    artifact: str | Path,
    *,
    device: str = "host",
    sentences: Path | None = None,
    threads: int = 1,
    runs: int = 200,
    tokenizer: Path | None = None,
    output: Path | None = None,
    prepare: bool = False,
    cpus: str | None = None,
) -> LatencySummary:
    """Measures one artifact per sentence.

    Args:
        artifact: the artifact's folder, or a bare ``.onnx`` or ``.tflite`` file of any maker.
        device: profile, with where to reach it.
        sentences: text file, or labelled text; built-in sentences where it is None.
        threads: threads the model may use.
        runs: timed runs over all processes.
        tokenizer: for a bare file, the folder with the tokenizer it was trained with.
        output: folder for the measurement file with every single time; not kept where it is None.
        prepare: put the device into a steadier state for the measurement, and back afterwards.
        cpus: cores that the processes are pinned to, e.g. ``4-7`` or ``big``; see :func:`devices.affinity.check_cpus`.
    """
    place = Path(artifact)
    if place.is_file():
        from export.bare import open_bare  # it reads a model folder with PyTorch; an artifact needs none

        file = open_bare(place, tokenizer)
        precision = backend_for(file.format).inspect(place).precision
        subject = bare_subject(place, file.io, format_name=file.format, precision=precision, tokenizer=file.tokenizer)
        texts = _texts(sentences, [file.io])
    else:
        loaded = Artifact.load(place)
        _check_runs(loaded, parse_device(device))
        subject, texts = subject_of(loaded), _texts(sentences, [loaded.io])
    _make_folder(output)
    (measurement,) = measure(
        [subject], texts, device=parse_device(device), threads=threads, runs=runs, processes=PROCESSES, prepare=prepare,
        cpus=cpus,
    )  # fmt: skip
    _keep(output, [measurement])
    return summary(measurement)


def gate(
    artifact: str | Path,
    *,
    budget: Path,
    device: str = "host",
    sentences: Path | None = None,
    threads: int = 1,
    max_runs: int | None = None,
    baseline: Path | None = None,
    history: Path | None = None,
    commit: str | None = None,
    junit: Path | None = None,
    summary: Path | None = None,
    output: Path | None = None,
    prepare: bool = False,
    cpus: str | None = None,
    announce: Callable[[str], None] = _LOG.info,
) -> GateReport:
    """Measures artifacts and judges them against a budget file.

    Runs are looked at a few times, with the error split over the looks: a clear case ends early.

    Args:
        artifact: an artifact's folder, or a folder of them.
        budget: ``budgets.yaml``.
        device: profile, with where to reach it.
        sentences: text file, or labelled text; built-in sentences where it is None.
        threads: threads the model may use.
        max_runs: the most timed runs of each artifact; None: 500, or twice what the strictest percentile needs.
        baseline: an artifact, measured interleaved with the others, or a stored measurement of the same device.
        history: SQLite file to which the measurements are appended.
        commit: the source revision for the history; None: what the CI system or git says.
        junit: where JUnit XML is written.
        summary: a markdown file to which a table is appended.
        output: folder for the measurement files.
        prepare: put the device into a steadier state for the measurement, and back afterwards.
        cpus: cores that the processes are pinned to, as for :func:`bench`.
        announce: is told the plan (runs needed, looks, error) before the first run.

    Raises:
        RecipeError: the budget file is wrong, or is for no artifact that is there.
        UsageError: a percentile needs more runs than ``max_runs``, or a baseline that is missing or not comparable.
        ArtifactError: an artifact that was altered since it was made, and with it its accuracy.
        FolderError: the history, or another file that is asked for, cannot be written.
        DeviceError: the device is not reached.
    """
    address = parse_device(device)
    file = load_budgets(budget)
    budgets = file.for_device(address.profile.name)
    artifacts = _artifacts(Path(artifact))
    pairs = matches(artifacts, budgets)
    if baseline is None and any(item.needs_baseline for item in budgets):
        raise UsageError(
            f"{budget} limits a regression and there is no baseline to compare with",
            remedy="pass --baseline ARTIFACT_OR_MEASUREMENT, or remove the limit",
        )
    compared = read_baseline(baseline, address, threads)
    for path in filter(None, (junit, summary)):
        check_writable(path)
    if history is not None:
        check_store(history)
    _make_folder(output)
    timed = [item for item in artifacts if _needs_times(item, pairs, address)]
    for item in (*timed, *([compared] if isinstance(compared, Artifact) else [])):
        _check_runs(item, address)
    texts = _texts(sentences, [item.io for item in timed])
    needs = plan_needs(artifacts, budgets, texts, timed)
    first = REGRESSION_RUNS if any(item.needs_baseline for item in budgets) else 1
    looks = plan_looks(needs, max_runs=max_runs, first=first)
    if timed:
        announce(describe(looks, needs))

    def take(subjects: Sequence[Subject], runs: int, processes: int, seed: int) -> list[Measurement]:
        return measure(
            subjects, texts, device=address, threads=threads, runs=runs, processes=processes, seed=seed,
            prepare=prepare, cpus=cpus,
        )  # fmt: skip

    run = run_gate(artifacts, budgets, timed=timed, looks=looks, needs=needs, take=take, baseline=compared)
    verdict = run.verdict.model_copy(update={"hints": hints_for(run, artifacts, address, threads=threads)})
    _keep(output, run.measurements)
    if history is not None and run.measurements:
        append(history, _entries(run.measurements, verdict, revision(commit)))
    if junit is not None:
        write_text(junit, junit_xml(verdict))
    if summary is not None:
        with disk_errors(summary), summary.open("a", encoding="utf-8") as stream:
            stream.write(markdown_summary(verdict))
    return verdict


def gate_example(
    artifact: str | Path,
    *,
    path: Path = Path("budgets.yaml"),
    device: str = "host",
    sentences: Path | None = None,
    threads: int = 1,
) -> Path:
    """Writes a commented budget file that an artifact passes, with limits from what is found here.

    Args:
        artifact: the artifact's folder.
        path: where it is written; a file that is there is never replaced.
        device: profile, with where to reach it; a kind of device alone gives limits on size and accuracy.
        sentences: text file, or labelled text; built-in sentences where it is None.
        threads: threads the model may use.

    Returns:
        ``path``.

    Raises:
        UsageError: the file is there already.
    """
    if path.exists():
        raise UsageError(f"{path} is there already; expected a new file", remedy="name another with --budget")
    loaded, address = Artifact.load(Path(artifact)), parse_device(device)
    _check_runs(loaded, address)
    times = None
    if address.transport != "unreached":
        texts = _texts(sentences, [loaded.io])
        (measured,) = measure(
            [subject_of(loaded)], texts, device=address, threads=threads, runs=REGRESSION_RUNS, processes=2
        )
        times = summary(measured)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, budget_example(loaded, address.profile.name, times))
    return path


def probe(device: str) -> Probe:
    """Returns a device's condition now."""
    address = parse_device(device)
    with target_for(address) as target:
        found = target.conditions()
        return Probe(
            device=address.name,
            fingerprint=target.fingerprint(),
            conditions=found,
            judgement=judge(found, found, threads=1),
        )


def _needs_times(artifact: Artifact, pairs: Sequence[tuple[Budget, Artifact]], device: DeviceAddress) -> bool:
    """Returns whether a budget limits the artifact's times and the device can run it.

    What it cannot run is judged as not measured there, which is no pass.
    """
    limited = any(budget.needs_times for budget, matched in pairs if matched.name == artifact.name)
    manifest = artifact.manifest
    return limited and legality(device.profile, manifest.format, manifest.precision, family=artifact.family) is None


def _entries(measurements: Sequence[Measurement], verdict: Verdict, commit: str) -> list[Entry]:
    """Returns the rows for the history, each with the verdict on its own subject."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = []
    for item in measurements:
        checks = tuple(check for check in verdict.checks if check.artifact == item.subject)
        outcome = Verdict.of(checks).verdict if checks else None
        found.append(entry_of(item, recorded=now, commit_id=commit, verdict=outcome))
    return found


def _artifacts(path: Path) -> list[Artifact]:
    folders = [path] if (path / MANIFEST).is_file() else sorted(file.parent for file in path.glob(f"*/{MANIFEST}"))
    if not folders:
        raise UsageError(
            f"{path} is neither an artifact nor a folder of artifacts", remedy="make one with 'compressor convert'"
        )
    return [Artifact.load(folder) for folder in folders]


def _check_runs(artifact: Artifact, device: DeviceAddress) -> None:
    """Refuses what the device cannot run, before anything is measured."""
    check_legal(device.profile, artifact.manifest.format, artifact.manifest.precision, family=artifact.family)
    check_target(device.profile, artifact.manifest.target)


def _texts(sentences: Path | None, read_by: Sequence[IOSpec]) -> tuple[Text, ...]:
    """Returns the sentences in the form that the models read, pairs where they read pairs."""
    texts = read_texts(sentences)[0]
    kinds = {(io.task, io.text_columns) for io in read_by}
    return texts_for(*kinds.pop(), texts) if len(kinds) == 1 else texts


def _make_folder(folder: Path | None) -> None:
    """Makes an output folder before anything is measured for it."""
    if folder is not None:
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)


def _keep(folder: Path | None, measurements: Sequence[Measurement]) -> None:
    if folder is None:
        return
    for item in measurements:
        item.save(folder / f"{measurement_name(item)}.json")
