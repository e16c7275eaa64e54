"""The state of a remote device, read with the tools it has: one script of plain shell, then parsing here."""

from __future__ import annotations

import time
from typing import Protocol

from devices.conditions import Conditions
from devices.profiles import DeviceAddress
from devices.readings import android, jetson, linux
from devices.readings.sections import sections
from devices.targets.target import Completed


class Asked(Protocol):
    """What of a target a reading needs."""

    address: DeviceAddress

    def ask(self, script: str, *, time_limit_s: float = ...) -> Completed:
        """Runs a few lines of shell that may safely run twice."""
        ...


def read_conditions(target: Asked) -> Conditions:
    """Reads a remote device. What it does not tell is None.

    Raises:
        DeviceError: the device is gone.
    """
    kind = target.address.profile.kind
    script = linux.CONDITIONS + {"android": android.CONDITIONS, "jetson": jetson.CONDITIONS}.get(kind, "")
    found = sections(target.ask(script).stdout)
    fields = linux.conditions(found)
    if kind == "android":
        fields |= android.conditions(found)
    elif kind == "jetson":
        fields |= jetson.conditions(found)
    uptime = linux.uptime_s(found)
    return Conditions(clock_s=time.monotonic() if uptime is None else uptime, **fields)


def read_fingerprint(target: Asked) -> dict[str, str]:
    """Returns what identifies a remote device's hardware and system."""
    kind = target.address.profile.kind
    script = linux.FINGERPRINT + {"android": android.FINGERPRINT, "jetson": jetson.FINGERPRINT}.get(kind, "")
    found = sections(target.ask(script).stdout)
    known = linux.fingerprint(found)
    known |= {
        name.removeprefix("as:"): text.strip()
        for name, text in found.items()
        if name.startswith("as:") and text.strip()
    }
    return known
