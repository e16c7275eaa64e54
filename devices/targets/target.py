"""What every way to reach a device can do, and the choice of one by address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from compressor.core.errors import DeviceError, UsageError
from devices.conditions import Conditions
from devices.profiles import DeviceAddress


@dataclass(frozen=True)
class Completed:
    """A command that ended by itself."""

    returncode: int
    """The command's own exit code; negative: the signal that ended it."""
    stdout: str
    stderr: str
    seconds: float


class ConnectionLostError(DeviceError):
    """The way to the device broke while it was in use; what ran there is ended by the device's own supervisor."""


class Target(Protocol):
    """A reached device. Entering gives it a working folder there, leaving removes that folder.

    Paths on the device are plain strings: they belong to its file system, not to this machine's.
    """

    address: DeviceAddress
    python: str
    """The Python interpreter on the device; empty where there is none."""
    machine: str
    """The device's processor architecture, as ``uname -m`` says it."""

    def push(self, local: Path) -> str:
        """Makes a file or folder of this machine available on the device and returns its path there."""
        ...

    def path(self, name: str) -> str:
        """Returns the device's path for ``name`` in the working folder."""
        ...

    def run(
        self, command: Sequence[str], *, time_limit_s: float, environment: Mapping[str, str] | None = None
    ) -> Completed:
        """Runs a command to its end.

        Raises:
            DeviceError: the command did not start or did not end in time; then it and its children have been ended.
        """
        ...

    def pull(self, remote: str, local: Path) -> None:
        """Copies a file from the device.

        Raises:
            DeviceError: there is no such file.
        """
        ...

    def has_modules(self, modules: Sequence[str]) -> bool:
        """Returns whether the device's Python can import all of these; also where that is to be found out by doing."""
        ...

    def reconnect(self) -> None:
        """Makes a new connection after one has broken."""
        ...

    def conditions(self) -> Conditions:
        """Reads the state of the device that bears on timing."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """Returns what identifies the device's hardware and system."""
        ...


def target_for(address: DeviceAddress) -> AbstractContextManager[Target]:
    """Returns the target for an address, to be entered with ``with``.

    Raises:
        UsageError: the address says what the device is, not where.
        DeviceError: the device cannot be reached from here.
    """
    if address.transport == "local":
        from devices.targets.local import LocalTarget

        return LocalTarget(address)
    if address.transport == "unreached":
        raise UsageError(
            f"'{address.profile.name}' names a kind of device but not where one is; expected an address to measure on",
            remedy=f"add where one is, e.g. {address.profile.name}@adb:SERIAL or {address.profile.name}@ssh:USER@HOST",
        )
    if address.transport == "aihub":
        raise DeviceError(
            f"{address.name}: Qualcomm AI Hub has no shell for the runner; it times models itself",
            remedy="use devices.targets.aihub.remote_for, or a phone of your own with adb:SERIAL",
        )
    from devices.targets.remote import RemoteTarget

    if address.transport == "adb":
        from devices.targets.adb import AdbLink

        return RemoteTarget(address, AdbLink(address.where))
    from devices.targets.ssh import SshLink

    return RemoteTarget(address, SshLink(address.where))
