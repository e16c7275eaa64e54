"""Measures several subjects in one interleaved run and keeps every single time."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain, pairwise

from benchmarks.sentences import sample, split
from benchmarks.subject import Subject
from compressor.core.errors import ArtifactError, UsageError
from compressor.core.measurement import Measurement, Runs
from compressor.core.schema import Text
from devices.affinity import check_cpus, core_numbers, resolve_cpus
from devices.conditions import Cluster, Conditions, judge
from devices.cooldown import cool_down
from devices.legality import check_legal
from devices.prepare import prepared
from devices.profiles import DeviceAddress
from devices.runner import Job, RunnerResult, WarmUp, run_job
from devices.targets import target_for

COOL_DOWN_S = 120.0
"""The longest pause before a process on a device that has become warm."""
_SAME_KIND = 0.9
"""Cores whose top clocks are within this share of each other are of one kind: favoured cores differ a little."""
_LOG = logging.getLogger(__name__)


def measure(
    subjects: Sequence[Subject],
    sentences: Sequence[Text],
    *,
    device: DeviceAddress,
    threads: int = 1,
    runs: int = 200,
    processes: int = 5,
    seed: int = 0,
    warmup: WarmUp | None = None,
    time_limit_s: float = 600.0,
    prepare: bool = False,
    cpus: str | None = None,
) -> list[Measurement]:
    """Times every subject on the same sentences, interleaved: in each round, one fresh process of each in random order.

    Interleaving exposes all subjects to the same drift of the machine, so that their ratio holds even where it is not
    quiet; restarts expose what a single process hides (memory layout, allocation, placement on cores).

    Args:
        subjects: what to time; names are unique.
        sentences: the user's sentences; the runs take a seeded sample with the same mix of lengths.
        device: where.
        threads: threads a model may use.
        runs: timed runs of each subject, over all processes together.
        processes: fresh processes of each subject, or as many as the subject allows.
        seed: decides sample, order of sentences and order of subjects.
        warmup: when a length counts as warm.
        time_limit_s: for one process.
        prepare: put the device into a steadier state for the measurement, and back afterwards.
        cpus: cores that the processes are pinned to; see :func:`devices.affinity.resolve_cpus`.

    Returns:
        One measurement a subject, in the order of ``subjects``.

    Raises:
        UsageError: no subjects, two of one name, no sentences, counts below 1, or cores that are not there.
        IllegalOnDeviceError: the device cannot run a subject's format or precision.
        ArtifactError: a subject without its tokenizer.
        DeviceError: the device is not reached, or a process failed.
    """
    _check(subjects, runs=runs, processes=processes, threads=threads, device=device, cpus=cpus)
    order = sample(sentences, runs, seed=seed)
    orders = {item.name: split(order, min(processes, item.processes or processes)) for item in subjects}
    shuffle = random.Random(seed)
    results: dict[str, list[RunnerResult]] = {subject.name: [] for subject in subjects}
    during: list[Conditions] = []
    with target_for(device) as target, prepared(target) if prepare else nullcontext():
        before = target.conditions()
        cores = () if cpus is None else resolve_cpus(cpus, device, before, threads=threads)
        for number in range(max(map(len, orders.values()))):
            waiting = [subject for subject in subjects if number < len(orders[subject.name])]
            for subject in shuffle.sample(waiting, len(waiting)):
                part = orders[subject.name]
                if device.transport != "local":
                    during += cool_down(target.conditions, before, limit_s=COOL_DOWN_S)
                _LOG.info("process %d of %d: %s", number + 1, len(part), subject.name)
                job = _job(subject, sentences, part[number], threads=threads, warmup=warmup or WarmUp(), cpus=cores)
                results[subject.name].append(run_job(target, job, time_limit_s=time_limit_s))
        after = target.conditions()
        fingerprint = target.fingerprint()
    return [
        _measurement(
            subject,
            orders[subject.name],
            results[subject.name],
            device=device,
            fingerprint=fingerprint,
            before=before,
            during=during,
            after=after,
            threads=threads,
            cpus=cores,
            seed=seed,
        )
        for subject in subjects
    ]


def measurement_name(measurement: Measurement) -> str:
    """Returns a file name for a measurement: profile, address where that is not ``local``, and subject."""
    profile, _, address = measurement.device.partition("@")
    where = "" if address == "local" else "-" + re.sub(r"[^A-Za-z0-9._-]+", "_", address)
    return f"{profile}{where}-{measurement.subject}"


def _check(
    subjects: Sequence[Subject], *, runs: int, processes: int, threads: int, device: DeviceAddress, cpus: str | None
) -> None:
    names = [subject.name for subject in subjects]
    if not names or len(set(names)) != len(names):
        raise UsageError(
            f"subjects to measure: {names or 'none'}; expected at least one, each with a name of its own",
            remedy="name artifact folders with different names",
        )
    if min(runs, processes, threads) < 1:
        raise UsageError(
            f"runs {runs}, processes {processes}, threads {threads}; expected each to be at least 1",
            remedy="give positive numbers",
        )
    if cpus is not None:
        check_cpus(cpus, device.profile)
        if gpu := [subject.name for subject in subjects if subject.runtime == "tensorrt"]:
            raise UsageError(f"{gpu[0]} runs on a GPU; cpus names CPU cores", remedy="leave cpus out")
    for subject in subjects:
        if subject.format is not None:
            check_legal(device.profile, subject.format, subject.precision, family=subject.family)
        if not (subject.tokenizer / "tokenizer.json").is_file():
            raise ArtifactError(
                f"{subject.tokenizer} holds no tokenizer.json; expected it there, because tokenisation is timed",
                remedy="convert again, or save the fast tokenizer there with save_pretrained()",
            )


def _job(
    subject: Subject,
    sentences: Sequence[Text],
    order: Sequence[int],
    *,
    threads: int,
    warmup: WarmUp,
    cpus: tuple[int, ...],
) -> Job:
    """Builds the job for one process; only the sentences of its order travel, under their own index."""
    used = _used(order)
    position = {index: place for place, index in enumerate(used)}
    return Job(
        runtime=subject.runtime,
        model=str(subject.model),
        tokenizer=str(subject.tokenizer / "tokenizer.json"),
        threads=threads,
        max_tokens=subject.max_tokens,
        lengths=subject.lengths,
        pad_to=subject.pad_to,
        pad_id=subject.pad_id,
        signatures=subject.signatures,
        sentences=tuple(sentences[index] for index in used),
        order=tuple(position[index] for index in order),
        warmup=warmup,
        cpus=cpus,
    )


def _measurement(
    subject: Subject,
    orders: Sequence[Sequence[int]],
    results: Sequence[RunnerResult],
    *,
    device: DeviceAddress,
    fingerprint: dict[str, str],
    before: Conditions,
    during: Sequence[Conditions],
    after: Conditions,
    threads: int,
    cpus: tuple[int, ...],
    seed: int,
) -> Measurement:
    peaks = [result.peak_memory_mb for result in results if result.peak_memory_mb is not None]
    truncated = {
        _used(order)[place]
        for order, result in zip(orders, results, strict=True)
        for place in result.truncated_sentences
    }
    judgement = judge(before, after, threads=threads, during=during)
    tokenized = [result.runs.tokenize_ms for result in results if result.runs.tokenize_ms is not None]
    return Measurement(
        subject=subject.name,
        subject_hash=subject.hash,
        device=device.name,
        fingerprint={
            **fingerprint,
            "python": results[0].python,
            **({"cpus": ",".join(map(str, cpus))} if cpus else {}),
        },
        runtime=results[0].runtime,
        threads=threads,
        warmup_runs=sum(result.warmup_runs for result in results),
        processes=len(results),
        cold_ms=tuple(result.cold_ms for result in results),
        load_ms=tuple(result.load_ms for result in results),
        peak_memory_mb=max(peaks, default=None),
        conditions_before=before.model_dump(mode="json"),
        conditions_after={**after.model_dump(mode="json"), "notes": list(judgement.notes), **_extremes(during)},
        invalid_reason=judgement.invalid_reason
        or _clock_problem([before, *during, after])
        or _strayed(results, cpus)
        or _migration(results, after.clusters),
        truncated_sentences=len(truncated),
        seed=seed,
        runs=Runs(
            sentence=tuple(chain.from_iterable(orders)),
            tokens=tuple(chain.from_iterable(result.runs.tokens for result in results)),
            length=tuple(chain.from_iterable(result.runs.length for result in results)),
            tokenize_ms=tuple(chain.from_iterable(tokenized)) if len(tokenized) == len(results) else None,
            inference_ms=tuple(chain.from_iterable(result.runs.inference_ms for result in results)),
            process=tuple(chain.from_iterable([number] * len(order) for number, order in enumerate(orders))),
        ),
    )


def _clock_problem(readings: Sequence[Conditions]) -> str | None:
    """Returns what is wrong where a later reading has an earlier time: the device, whose uptime it is, restarted."""
    times = [reading.clock_s for reading in readings]
    steps = [later - earlier for earlier, later in pairwise(times)]
    if min(steps) >= 0:
        return None
    return f"the device's clock stepped back by {-min(steps):.1f} s during the run: it restarted; repeat"


def _strayed(results: Sequence[RunnerResult], cpus: tuple[int, ...]) -> str | None:
    """Returns which process ran outside the cores it was pinned to, where the runner tells."""
    for number, result in enumerate(results, 1):
        if cpus and (outside := set(result.cores or ()) - set(cpus)):
            return f"process {number} ran on core {min(outside)}, though it was pinned to {', '.join(map(str, cpus))}"
    return None


def _migration(results: Sequence[RunnerResult], clusters: Sequence[Cluster]) -> str | None:
    """Returns which process ran on cores of two kinds: half of its times are those of the slower kind.

    Cores of one kind are all alike, so that moving between them is part of the machine's ordinary noise.
    """
    kind = {core: cluster for cluster in clusters if cluster.top_mhz for core in core_numbers(cluster.cpus)}
    for number, result in enumerate(results, 1):
        found = sorted({(kind[core].top_mhz or 0.0, kind[core].cpus) for core in result.cores or () if core in kind})
        if found and found[0][0] < _SAME_KIND * found[-1][0]:
            return (
                f"process {number} migrated between cores of different kinds ({found[0][1]} and {found[-1][1]}): "
                "keep it on one kind (--cpus) and repeat"
            )
    return None


def _extremes(during: Sequence[Conditions]) -> dict[str, object]:
    """Returns what the readings between the processes have of most: heat and thermal status; and the mean power."""
    if not during:
        return {}
    power = [reading.power_mw for reading in during if reading.power_mw is not None]
    found: dict[str, object] = {
        "readings_during": len(during),
        "hottest_c_during": max((reading.hottest_c for reading in during if reading.hottest_c), default=None),
        "thermal_status_during": max((r.thermal_status for r in during if r.thermal_status is not None), default=None),
        "mean_power_mw_during": sum(power) / len(power) if power else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _used(order: Sequence[int]) -> list[int]:
    """Returns the sentences of an order, each once: place in this list is the sentence's index in the job."""
    return sorted(set(order))
