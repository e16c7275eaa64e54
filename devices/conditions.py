"""The state of a machine that bears on timing, and whether a time measured in it means anything.

A measurement is *invalid* only where the numbers are clearly not the model's own:

- the control group's CPU limit stopped our processes for more than ``MAX_THROTTLED`` of the measured time, or is
  smaller than the threads used;
- the hypervisor took more than ``MAX_STOLEN`` of the machine's CPU time while we measured;
- less than ``MIN_MEMORY_MB`` of memory were available, so that pages were being reclaimed;
- more than ``MAX_LOAD`` runnable tasks per core stood in the queue, before and after.

Everything else that widens the times is a *note*: a busy neighbour (the verdict's binomial test then says
"inconclusive" by itself), a power-saving governor, turbo clocks, a clock that moved. So a shared CI machine stays
measurable.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from compressor.core.schema import Record

MAX_THROTTLED = 0.05
MAX_STOLEN = 0.25
MAX_LOAD = 8.0
MIN_MEMORY_MB = 64.0
_NOTE_STOLEN = 0.02
_NOTE_CLOCK = 0.8

_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


class Conditions(Record):
    """One reading. A field is None where the system does not tell."""

    clock_s: float
    """Monotonic time of the reading; only differences mean something."""
    cores: int
    """Cores this process may use (its affinity mask)."""
    load_average: float | None = None
    """Runnable tasks, averaged over the last minute."""
    cpu_limit: float | None = None
    """Cores that the control group grants; None: no limit."""
    throttled_s: float | None = None
    """Time that the control group has stopped its tasks so far."""
    stolen_s: float | None = None
    """CPU time that the hypervisor has given to others so far, over all cores."""
    governor: str | None = None
    turbo: bool | None = None
    frequency_mhz: float | None = None
    """Mean current clock over the cores."""
    memory_available_mb: float | None = None


@dataclass(frozen=True)
class Judgement:
    """What two readings say of the measurement between them."""

    invalid_reason: str | None
    notes: tuple[str, ...]


def host_conditions() -> Conditions:
    """Reads this machine. Never fails: what cannot be read is None."""
    import psutil

    try:
        load: float | None = os.getloadavg()[0]
    except OSError:
        load = None
    frequency = psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
    limit, throttled = _cgroup_cpu()
    return Conditions(
        clock_s=time.monotonic(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load_average=load,
        cpu_limit=limit,
        throttled_s=throttled,
        stolen_s=getattr(psutil.cpu_times(), "steal", None),
        governor=_read(_CPU / "cpu0/cpufreq/scaling_governor"),
        turbo=_turbo(),
        frequency_mhz=frequency.current if frequency and frequency.current else None,
        memory_available_mb=psutil.virtual_memory().available / 1e6,
    )


def judge(before: Conditions, after: Conditions, *, threads: int) -> Judgement:
    """Says whether the time between two readings was measurable, by the rules in this module's text.

    Args:
        before: the reading just before the first process.
        after: the reading just after the last one.
        threads: threads the model ran with.
    """
    seconds = max(after.clock_s - before.clock_s, 1e-9)
    throttled = _difference(before.throttled_s, after.throttled_s) / seconds
    stolen = _difference(before.stolen_s, after.stolen_s) / (seconds * max(after.cores, 1))
    memory = min((x.memory_available_mb for x in (before, after) if x.memory_available_mb is not None), default=None)
    queue = min(x.load_average / max(x.cores, 1) if x.load_average is not None else 0.0 for x in (before, after))

    invalid = None
    if after.cpu_limit is not None and after.cpu_limit < threads:
        invalid = f"the control group grants {after.cpu_limit:.2f} cores and {threads} threads were used"
    elif throttled > MAX_THROTTLED:
        invalid = f"the control group's CPU limit stopped the processes for {throttled:.0%} of the time"
    elif stolen > MAX_STOLEN:
        invalid = f"the hypervisor took {stolen:.0%} of the CPU time"
    elif memory is not None and memory < MIN_MEMORY_MB:
        invalid = f"only {memory:.0f} MB of memory were available"
    elif queue > MAX_LOAD:
        invalid = f"at least {queue:.0f} tasks per core were waiting to run"
    return Judgement(invalid, _notes(before, after, stolen=stolen, queue=queue, threads=threads))


def _notes(before: Conditions, after: Conditions, *, stolen: float, queue: float, threads: int) -> tuple[str, ...]:
    notes = []
    if threads > after.cores:
        notes.append(f"{threads} threads on {after.cores} cores")
    if before.load_average is not None and before.load_average > before.cores:
        notes.append(f"load average {before.load_average:.1f} on {before.cores} cores before the run: other work ran")
    elif queue > 1:
        notes.append(f"{queue:.1f} tasks per core during the run")
    if stolen > _NOTE_STOLEN:
        notes.append(f"the hypervisor took {stolen:.0%} of the CPU time")
    if after.governor not in (None, "performance"):
        notes.append(f"CPU governor '{after.governor}'")
    if after.turbo:
        notes.append("turbo clocks are on")
    if before.frequency_mhz and after.frequency_mhz and after.frequency_mhz < _NOTE_CLOCK * before.frequency_mhz:
        notes.append(f"the clock fell from {before.frequency_mhz:.0f} to {after.frequency_mhz:.0f} MHz")
    return tuple(notes)


def _difference(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else max(after - before, 0.0)


def _turbo() -> bool | None:
    if (off := _read(_CPU / "intel_pstate/no_turbo")) is not None:
        return off == "0"
    boost = _read(_CPU / "cpufreq/boost")
    return None if boost is None else boost == "1"


def _cgroup_cpu() -> tuple[float | None, float | None]:
    """Returns (granted cores, seconds throttled) of this process's control group, version 2 or 1."""
    folder = _cgroup_v2_folder()
    if (line := _read(folder / "cpu.max")) is not None:
        quota, _, period = line.partition(" ")
        limit = None if quota == "max" else float(quota) / float(period or 100_000)
        throttled = _statistic(folder / "cpu.stat", "throttled_usec")
        return limit, None if throttled is None else throttled / 1e6
    version_1 = _CGROUP / "cpu"
    quota_us, period_us = _read(version_1 / "cpu.cfs_quota_us"), _read(version_1 / "cpu.cfs_period_us")
    limit = float(quota_us) / float(period_us) if quota_us and period_us and float(quota_us) > 0 else None
    throttled = _statistic(version_1 / "cpu.stat", "throttled_time")
    return limit, None if throttled is None else throttled / 1e9


def _cgroup_v2_folder() -> Path:
    for line in (_read(Path("/proc/self/cgroup")) or "").splitlines():
        if line.startswith("0::"):
            folder = _CGROUP / line.removeprefix("0::").lstrip("/")
            return folder if (folder / "cpu.max").is_file() else _CGROUP
    return _CGROUP


def _statistic(file: Path, name: str) -> float | None:
    for line in (_read(file) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return float(value)
    return None


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
