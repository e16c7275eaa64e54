"""The state of a machine that bears on timing, and whether a time measured in it means anything.

A measurement is *invalid* only where the numbers are clearly not the model's own:

- the control group's CPU limit stopped our processes for more than ``MAX_THROTTLED`` of the measured time, or is
  smaller than the threads used;
- the hypervisor took more than ``MAX_STOLEN`` of the machine's CPU time while we measured;
- less than ``MIN_MEMORY_MB`` of memory were available, so that pages were being reclaimed;
- more than ``MAX_LOAD`` runnable tasks per core stood in the queue, before and after;
- the device slowed itself down: Android's thermal status reached ``MAX_THERMAL_STATUS``, its firmware says it limits
  the clocks, a cluster's clock limit was lowered, or the power mode was changed while we measured.

Everything else that widens the times is a *note*: a busy neighbour (the verdict's binomial test then says
"inconclusive" by itself), a power-saving governor, turbo clocks, a clock that moved. So a shared CI machine stays
measurable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from compressor.core.schema import Record

MAX_THROTTLED = 0.05
MAX_STOLEN = 0.25
MAX_LOAD = 8.0
MIN_MEMORY_MB = 64.0
MAX_THERMAL_STATUS = 2
"""Android's THERMAL_STATUS_MODERATE: "moderate throttling where UX is not largely impacted" (PowerManager)."""
THERMAL_STATUS = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
LOW_BATTERY = 20
_LOWERED = 0.97
_NOTE_STOLEN = 0.02
_NOTE_CLOCK = 0.8


class Cluster(Record):
    """Cores that share a clock."""

    cpus: str
    """Their numbers, as the kernel lists them."""
    governor: str | None = None
    current_mhz: float | None = None
    limit_mhz: float | None = None
    """What governor and thermal driver allow now."""
    top_mhz: float | None = None
    """What the cores can do."""


class Conditions(Record):
    """One reading. A field is None where the system does not tell."""

    clock_s: float
    """Monotonic time of the reading, on the device's own clock where it tells; only differences mean something."""
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
    clusters: tuple[Cluster, ...] = ()
    temperatures_c: dict[str, float] = Field(default_factory=dict)
    """By sensor, as the device names them."""
    thermal_status: int | None = None
    """Android's, 0 (none) to 6 (shutdown)."""
    limits: tuple[str, ...] = ()
    """What the device's firmware says is slowing it down now."""
    battery_percent: int | None = None
    charging: bool | None = None
    screen_on: bool | None = None
    power_mode: str | None = None
    """Jetson: the nvpmodel in force."""
    clocks_locked: bool | None = None
    """Jetson: jetson_clocks is in force."""
    gpu_mhz: float | None = None
    power_mw: float | None = None
    """What the whole device draws, where it has a sensor."""

    @property
    def hottest_c(self) -> float | None:
        """The highest temperature of any sensor."""
        return max(self.temperatures_c.values(), default=None)


@dataclass(frozen=True)
class Judgement:
    """What two readings say of the measurement between them."""

    invalid_reason: str | None
    notes: tuple[str, ...]


def judge(before: Conditions, after: Conditions, *, threads: int, during: Sequence[Conditions] = ()) -> Judgement:
    """Says whether the time between two readings was measurable, by the rules in this module's text.

    Args:
        before: the reading just before the first process.
        after: the reading just after the last one.
        threads: threads the model ran with.
        during: readings in between.
    """
    seconds = max(after.clock_s - before.clock_s, 1e-9)
    throttled = _difference(before.throttled_s, after.throttled_s) / seconds
    stolen = _difference(before.stolen_s, after.stolen_s) / (seconds * max(after.cores, 1))
    memory = min((x.memory_available_mb for x in (before, after) if x.memory_available_mb is not None), default=None)
    queue = min(x.load_average / max(x.cores, 1) if x.load_average is not None else 0.0 for x in (before, after))

    invalid = slowed_down([before, *during, after])
    if invalid is not None:
        pass
    elif after.cpu_limit is not None and after.cpu_limit < threads:
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


def slowed_down(readings: Sequence[Conditions]) -> str | None:
    """Returns how the device slowed itself down over some readings, with what to do; None where it did not."""
    first = readings[0]
    status = max((reading.thermal_status or 0 for reading in readings), default=0)
    if status >= MAX_THERMAL_STATUS:
        name = THERMAL_STATUS[min(status, len(THERMAL_STATUS) - 1)]
        return f"the device was throttling (thermal status {status}, {name}): let it cool, out of its case, and repeat"
    limits = sorted({limit for reading in readings for limit in reading.limits})
    if limits:
        return f"the device limits its clocks ({', '.join(limits)}): cool it or give it a stronger power supply"
    modes = list(dict.fromkeys(reading.power_mode for reading in readings if reading.power_mode))
    if len(modes) > 1:
        return f"the power mode changed from {modes[0]} to {modes[-1]} during the run: fix it with nvpmodel and repeat"
    at_first = {cluster.cpus: cluster.limit_mhz for cluster in first.clusters}
    for reading in readings[1:]:
        for cluster in reading.clusters:
            before = at_first.get(cluster.cpus)
            if before and cluster.limit_mhz and cluster.limit_mhz < _LOWERED * before:
                return (
                    f"the clock limit of cores {cluster.cpus} fell from {before:.0f} to {cluster.limit_mhz:.0f} MHz: "
                    "let the device cool and repeat"
                )
    return None


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
    notes += _device_notes(after)
    if before.frequency_mhz and after.frequency_mhz and after.frequency_mhz < _NOTE_CLOCK * before.frequency_mhz:
        notes.append(f"the clock fell from {before.frequency_mhz:.0f} to {after.frequency_mhz:.0f} MHz")
    return tuple(notes)


def _device_notes(found: Conditions) -> list[str]:
    notes = []
    if found.thermal_status == 1:
        notes.append("thermal status 1 (light): the device is warm")
    if found.battery_percent is not None and found.battery_percent < LOW_BATTERY and not found.charging:
        notes.append(f"battery at {found.battery_percent} %: power saving may be on")
    if found.screen_on:
        notes.append("the screen is on")
    if found.clocks_locked is False:
        notes.append("jetson_clocks is off: the clocks follow the load (--prepare locks them)")
    return notes + _cluster_notes(found)


def _cluster_notes(found: Conditions) -> list[str]:
    """Returns what clusters tell, once for all that tell the same: on many PCs every core is a cluster."""
    cpus: dict[str, list[str]] = {}
    for cluster in found.clusters:
        if cluster.governor not in (None, "performance") and found.governor is None:
            cpus.setdefault(f"governor '{cluster.governor}'", []).append(cluster.cpus)
        if cluster.limit_mhz and cluster.top_mhz and cluster.limit_mhz < _LOWERED * cluster.top_mhz:
            limited = f"limited to {cluster.limit_mhz:.0f} of {cluster.top_mhz:.0f} MHz"
            cpus.setdefault(limited, []).append(cluster.cpus)
    return [f"cores {', '.join(names)}: {what}" for what, names in cpus.items()]


def _difference(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else max(after - before, 0.0)
