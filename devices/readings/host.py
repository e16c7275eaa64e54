"""Reads this machine: load, clocks, turbo, control group limits, memory."""

from __future__ import annotations

import os
import time
from pathlib import Path

from devices.conditions import Cluster, Conditions
from devices.readings import linux

_CPU = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


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
        clusters=_clusters(),
    )


def _clusters() -> tuple[Cluster, ...]:
    files = [policy / name for policy in _CPU.glob("cpufreq/policy*") for name in linux.POLICY_FILES]
    lines = [f"{file.parent} {file.name} {text}" for file in files if (text := _read(file)) is not None]
    return linux.clusters("\n".join(lines))


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
