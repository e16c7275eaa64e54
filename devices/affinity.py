"""Which cores a run is pinned to: by number, or by the name of a kind of core of the device."""

from __future__ import annotations

import os
import re

from compressor.core.device import DeviceProfile
from compressor.core.errors import DeviceError, UsageError, nearest
from devices.conditions import Cluster, Conditions
from devices.profiles import DeviceAddress

_RANKS = {1: ("big",), 2: ("big", "little"), 3: ("prime", "big", "little"), 4: ("prime", "big", "middle", "little")}
"""What kinds of cores are called, the fastest first, by how many there are."""
_NUMBERS = re.compile(r"\d+(-\d+)?")


def core_numbers(text: str) -> tuple[int, ...]:
    """Returns the cores of a list such as ``0-3,6`` or, as the kernel also writes it, ``0 1 2 3``; ascending."""
    found: set[int] = set()
    for part in text.replace(",", " ").split():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def check_cpus(text: str, profile: DeviceProfile) -> None:
    """Refuses what can be neither numbers nor names of the device's cores, before the device is reached.

    Args:
        text: numbers and ranges (``4-7``, ``0,2``), ``prime``, ``big``, ``middle``, ``little``, or a core of the
            profile (``cortex-a77``); several with commas.
        profile: the kind of device.

    Raises:
        UsageError: anything else.
    """
    names = _names(profile)
    for part in _parts(text):
        first, _, last = part.partition("-")
        backwards = bool(_NUMBERS.fullmatch(part)) and bool(last) and int(first) > int(last)
        if backwards or (not _NUMBERS.fullmatch(part) and part not in names):
            raise UsageError(
                f"cpus '{text}': '{part}' names no cores of {profile.name}; expected numbers as in 4-7 or 0,2, or "
                f"one of {', '.join(names)}",
                remedy=nearest(part, names) if part[0].isalpha() else "write the lower number first: 4-7",
            )


def resolve_cpus(text: str, device: DeviceAddress, found: Conditions, *, threads: int) -> tuple[int, ...]:
    """Returns the numbers of the named cores on a device that was just read.

    Args:
        text: see :func:`check_cpus`.
        device: the device.
        found: its reading, which numbers the cores of each kind.
        threads: threads the model will use.

    Raises:
        UsageError: cores that are not there, fewer cores than threads, or a kind that the device does not tell.
        DeviceError: this system cannot pin a process.
    """
    check_cpus(text, device.profile)
    if device.transport == "local" and not hasattr(os, "sched_setaffinity"):
        raise DeviceError("this system pins no process to cores; expected Linux", remedy="leave cpus out")
    kinds = _kinds(device.profile, found.clusters)
    chosen: set[int] = set()
    for part in _parts(text):
        if _NUMBERS.fullmatch(part):
            chosen |= set(core_numbers(part))
        elif part in kinds:
            chosen |= kinds[part]
        else:
            raise UsageError(
                f"cpus '{text}': {device.name} tells no cores called '{part}'; it tells "
                f"{', '.join(f'{name} ({_list(cores)})' for name, cores in kinds.items()) or 'no kinds of cores'}",
                remedy="name the cores by number",
            )
    there = _there(device, found)
    if missing := chosen - there:
        raise UsageError(
            f"cpus '{text}': {device.name} has no core {_list(missing)} for us; expected some of {_list(there)}",
            remedy="name cores that are there",
        )
    if len(chosen) < threads:
        raise UsageError(
            f"cpus '{text}' names {len(chosen)} core(s) for {threads} threads; expected at least as many",
            remedy=f"name more cores, or pass --threads {len(chosen)}",
        )
    return tuple(sorted(chosen))


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip().lower() for part in text.split(","))
    if not all(parts):
        raise UsageError(f"cpus '{text}' names no cores; expected for example 4-7, 0,2 or big", remedy="name some")
    return parts


def _names(profile: DeviceProfile) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*_RANKS[4], *(cluster.core.lower() for cluster in profile.clusters))))


def _kinds(profile: DeviceProfile, clusters: tuple[Cluster, ...]) -> dict[str, set[int]]:
    """Returns the cores by name: kinds by rank of their top clock, and by the profile's cores where sizes agree.

    Clusters of one top clock are of one kind: a Jetson has two or three, all alike.
    """
    by_clock: dict[float, set[int]] = {}
    for cluster in clusters:
        if not cluster.top_mhz:
            return {}
        by_clock.setdefault(cluster.top_mhz, set()).update(core_numbers(cluster.cpus))
    cores = [by_clock[clock] for clock in sorted(by_clock, reverse=True)]
    kinds = dict(zip(_RANKS.get(len(cores), ()), cores, strict=False))
    listed = sorted(profile.clusters, key=lambda it: -(it.top_ghz or 0.0))
    if [it.count for it in listed] == [len(it) for it in cores]:
        for named, numbers in zip(listed, cores, strict=True):
            kinds[named.core.lower()] = kinds.get(named.core.lower(), set()) | numbers
    return kinds


def _there(device: DeviceAddress, found: Conditions) -> set[int]:
    if device.transport == "local":
        return set(os.sched_getaffinity(0))
    told = {core for cluster in found.clusters for core in core_numbers(cluster.cpus)}
    return told or set(range(found.cores))


def _list(cores: set[int]) -> str:
    return ", ".join(map(str, sorted(cores)))
