"""``bench``, ``gate`` and ``devices probe``: times on a device, and what a budget says of them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.budget import Budget, load_budgets
from benchmarks.gate import gate as judge_all
from benchmarks.gate import runs_needed_for
from benchmarks.junit import junit_xml
from benchmarks.measure import measure, measurement_name
from benchmarks.statistics import LatencySummary, summary
from benchmarks.subject import Subject, bare_subject, subject_of
from benchmarks.summary import markdown_summary
from compressor.app.inputs import read_texts
from compressor.core.artifact import MANIFEST, Artifact, IOSpec
from compressor.core.errors import UsageError
from compressor.core.folders import disk_errors, write_text
from compressor.core.limits import MEASURED
from compressor.core.measurement import Measurement
from compressor.core.schema import Record, Text
from compressor.core.verdict import Verdict
from devices.conditions import Conditions, Judgement, judge
from devices.legality import check_legal, check_target, legality
from devices.profiles import DeviceAddress, parse_device
from devices.targets import target_for
from export.backend import backend_for
from export.bare import open_bare
from export.source import texts_for

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
    """
    place = Path(artifact)
    if place.is_file():
        file = open_bare(place, tokenizer)
        precision = backend_for(file.format).inspect(place).precision
        subject = bare_subject(place, file.io, format_name=file.format, precision=precision, tokenizer=file.tokenizer)
        texts = _texts(sentences, [file.io])
    else:
        loaded = Artifact.load(place)
        _check_runs(loaded, parse_device(device))
        subject, texts = subject_of(loaded), _texts(sentences, [loaded.io])
    (measurement,) = _measure([subject], parse_device(device), texts, threads, runs, output, prepare)
    return summary(measurement)


def gate(
    artifact: str | Path,
    *,
    budget: Path,
    device: str = "host",
    sentences: Path | None = None,
    threads: int = 1,
    runs: int = 200,
    junit: Path | None = None,
    summary: Path | None = None,
    output: Path | None = None,
    prepare: bool = False,
) -> Verdict:
    """Measures artifacts and judges them against a budget file.

    Args:
        artifact: an artifact's folder, or a folder of them.
        budget: ``budgets.yaml``.
        device: profile, with where to reach it.
        sentences: text file, or labelled text; built-in sentences where it is None.
        threads: threads the model may use.
        runs: timed runs of each artifact; raised to what the strictest percentile in the budget needs.
        junit: where JUnit XML is written.
        summary: a markdown file to which a table is appended.
        output: folder for the measurement files.
        prepare: put the device into a steadier state for the measurement, and back afterwards.

    Raises:
        RecipeError: the budget file is wrong, or is for no artifact that is there.
    """
    address = parse_device(device)
    budgets = load_budgets(budget).for_device(address.profile.name)
    artifacts = _artifacts(Path(artifact))
    for path in filter(None, (junit, summary)):
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
    timed = [item for item in artifacts if _needs_times(item, budgets, address)]
    runs = max(runs, runs_needed_for(budgets))
    for item in timed:
        _check_runs(item, address)
    texts = _texts(sentences, [item.io for item in timed])
    subjects = [subject_of(item) for item in timed]
    measured = _measure(subjects, address, texts, threads, runs, output, prepare) if timed else []
    verdict = judge_all(artifacts, measured, budgets)
    if junit is not None:
        write_text(junit, junit_xml(verdict))
    if summary is not None:
        with disk_errors(summary), summary.open("a", encoding="utf-8") as stream:
            stream.write(markdown_summary(verdict))
    return verdict


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


def _needs_times(artifact: Artifact, budgets: Sequence[Budget], device: DeviceAddress) -> bool:
    """Returns whether a budget limits the artifact's times and the device can run it.

    What it cannot run is judged as not measured there, which is no pass.
    """
    limited = any(
        fnmatchcase(artifact.name, budget.artifact) and set(budget.limits()) & set(MEASURED) for budget in budgets
    )
    return limited and legality(device.profile, artifact.manifest.format, artifact.manifest.precision) is None


def _artifacts(path: Path) -> list[Artifact]:
    folders = [path] if (path / MANIFEST).is_file() else sorted(file.parent for file in path.glob(f"*/{MANIFEST}"))
    if not folders:
        raise UsageError(
            f"{path} is neither an artifact nor a folder of artifacts", remedy="make one with 'compressor convert'"
        )
    return [Artifact.load(folder) for folder in folders]


def _check_runs(artifact: Artifact, device: DeviceAddress) -> None:
    """Refuses what the device cannot run, before anything is measured."""
    check_legal(device.profile, artifact.manifest.format, artifact.manifest.precision)
    check_target(device.profile, artifact.manifest.target)


def _texts(sentences: Path | None, read_by: Sequence[IOSpec]) -> tuple[Text, ...]:
    """Returns the sentences in the form that the models read, pairs where they read pairs."""
    texts = read_texts(sentences)[0]
    kinds = {(io.task, io.text_columns) for io in read_by}
    return texts_for(*kinds.pop(), texts) if len(kinds) == 1 else texts


def _measure(
    subjects: Sequence[Subject],
    device: DeviceAddress,
    texts: Sequence[Text],
    threads: int,
    runs: int,
    output: Path | None,
    prepare: bool,
) -> list[Measurement]:
    if output is not None:
        with disk_errors(output):
            output.mkdir(parents=True, exist_ok=True)
    measured = measure(
        subjects,
        texts,
        device=device,
        threads=threads,
        runs=runs,
        processes=PROCESSES,
        prepare=prepare,
    )
    if output is not None:
        for item in measured:
            item.save(output / f"{measurement_name(item)}.json")
    return measured
