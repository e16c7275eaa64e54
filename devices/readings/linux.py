"""What any Linux board or Android phone tells: load, memory, clocks of each cluster, temperatures, firmware limits."""

from __future__ import annotations

import re
from typing import Any

from devices.conditions import Cluster
from devices.readings.sections import number, section

POLICY_FILES = ("related_cpus", "scaling_governor", "scaling_cur_freq", "scaling_max_freq", "cpuinfo_max_freq")
_USER_HZ = 100.0
"""Ticks a second in /proc/stat: 100 on every Linux port of these devices (proc(5))."""
_NO_TEMPERATURE = re.compile(r"(?:^|[-_])(?:ibat|vbat|bcl)(?:[-_]|$)|^socd?$")
"""Thermal zones of Qualcomm's battery current limiter: milliamperes, millivolts and percent, not degrees."""
_PI_LIMITS = {0: "under-voltage", 1: "clock capped", 2: "throttled", 3: "soft temperature limit"}

CONDITIONS = (
    section("uptime", "cat /proc/uptime")
    + section("load", "cat /proc/loadavg")
    + section("memory", "cat /proc/meminfo")
    + section("cores", "nproc || grep -c ^processor /proc/cpuinfo")
    + section("stat", "head -n 1 /proc/stat")
    + section(
        "policies",
        "for p in /sys/devices/system/cpu/cpufreq/policy*; do "
        f'for f in {" ".join(POLICY_FILES)}; do [ -r $p/$f ] && echo "$p $f $(cat $p/$f)"; done; done',
    )
    + section(
        "zones",
        'for z in /sys/class/thermal/thermal_zone*; do [ -r $z/temp ] && echo "$(cat $z/type) $(cat $z/temp)"; done',
    )
    + section("pi", "vcgencmd get_throttled")
)
FINGERPRINT = (
    section("as:system", "uname -sr")
    + section("as:architecture", "uname -m")
    + section("as:model", "tr -d '\\0' < /proc/device-tree/model")
    + section("as:cores", "nproc")
    + section("cpu", "cat /proc/cpuinfo")
    + section("memory", "cat /proc/meminfo")
)


def conditions(found: dict[str, str]) -> dict[str, Any]:
    """Returns the fields of ``Conditions`` that the answer to ``CONDITIONS`` holds."""
    cores = number(found.get("cores", "").strip())
    found_clusters = clusters(found.get("policies", ""))
    governors = {cluster.governor for cluster in found_clusters if cluster.governor}
    clocks = [cluster.current_mhz for cluster in found_clusters if cluster.current_mhz]
    ticks = found.get("stat", "").split()
    return {
        "cores": int(cores) if cores else 1,
        "load_average": number(next(iter(found.get("load", "").split()), None)),
        "memory_available_mb": _kilobytes(found.get("memory", ""), "MemAvailable:", 1e3),
        "stolen_s": float(ticks[8]) / _USER_HZ if len(ticks) > 8 and ticks[8].isdigit() else None,
        "clusters": found_clusters,
        "governor": governors.pop() if len(governors) == 1 else None,
        "frequency_mhz": sum(clocks) / len(clocks) if clocks else None,
        "temperatures_c": _zones(found.get("zones", "")),
        "limits": _pi_limits(found.get("pi", "")),
    }


def uptime_s(found: dict[str, str]) -> float | None:
    """Returns the seconds since the device was started, on its own clock: less than before where it has restarted."""
    return number(next(iter(found.get("uptime", "").split()), None))


def fingerprint(found: dict[str, str]) -> dict[str, str]:
    """Returns CPU features and memory from the answer to ``FINGERPRINT``."""
    features: set[str] = set()
    for line in found.get("cpu", "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("Features", "flags"):
            features |= set(value.split())
    wanted = ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve2", "avx2", "avx512_vnni")
    memory = _kilobytes(found.get("memory", ""), "MemTotal:", 1e6)
    return {
        **({"cpu_features": " ".join(name for name in wanted if name in features)} if features else {}),
        **({"memory_gb": f"{memory:.0f}"} if memory else {}),
    }


def clusters(text: str) -> tuple[Cluster, ...]:
    """Returns the clusters of an answer with a line for each of a policy's ``POLICY_FILES``: path, file, content."""
    policies: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        policy, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")
        policies.setdefault(policy, {})[name] = value.strip()
    return tuple(
        Cluster(
            cpus=values.get("related_cpus", policy.rpartition("policy")[2]),
            governor=values.get("scaling_governor"),
            current_mhz=_megahertz(values.get("scaling_cur_freq")),
            limit_mhz=_megahertz(values.get("scaling_max_freq")),
            top_mhz=_megahertz(values.get("cpuinfo_max_freq")),
        )
        for policy, values in sorted(policies.items(), key=lambda item: (len(item[0]), item[0]))
    )


def _megahertz(kilohertz: str | None) -> float | None:
    value = number(kilohertz)
    return None if value is None else value / 1e3


def _zones(text: str) -> dict[str, float]:
    """Thermal zones are in thousandths of a degree; a disabled sensor reads 0, a broken one far below."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        degrees = number(value)
        if name and not _NO_TEMPERATURE.search(name) and degrees is not None and 0 < degrees < 200_000:
            found[name] = degrees / 1e3 if degrees >= 1000 else degrees
    return found


def _pi_limits(text: str) -> tuple[str, ...]:
    """Raspberry Pi firmware: bits 0 to 3 of ``throttled=0x…`` say what limits it now, the others what has before."""
    _, _, value = text.strip().partition("throttled=")
    try:
        bits = int(value, 16)
    except ValueError:
        return ()
    return tuple(name for bit, name in _PI_LIMITS.items() if bits >> bit & 1)


def _kilobytes(text: str, name: str, divisor: float) -> float | None:
    for line in text.splitlines():
        words = line.split()
        if words[:1] == [name] and len(words) > 1 and words[1].isdigit():
            return int(words[1]) * 1024 / 1e3 / divisor
    return None
