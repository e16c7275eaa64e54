"""This machine as a device: processes in a group of their own, ended as a group."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from compressor.core.environment import machine
from compressor.core.errors import DeviceError
from devices.conditions import Conditions
from devices.profiles import DeviceAddress
from devices.readings.host import host_conditions
from devices.targets.processes import end_group
from devices.targets.target import Completed


class LocalTarget:
    """The machine that runs this process.

    Args:
        address: an address with the transport ``local``.

    Raises:
        DeviceError: the profile is of another processor architecture than this machine.
    """

    def __init__(self, address: DeviceAddress) -> None:
        expected, found = address.profile.architecture, platform.machine()
        if expected not in ("any", found):
            raise DeviceError(
                f"{address.name}: this machine is {found}, the profile {address.profile.name} is {expected}",
                remedy="measure on 'host', or run the command on such a device",
            )
        self.address = address
        self.python = sys.executable
        self.machine = found
        self._folder: Path | None = None

    def __enter__(self) -> LocalTarget:
        self._folder = Path(tempfile.mkdtemp(prefix="compressor-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def push(self, local: Path) -> str:
        """Returns the absolute path: what is here is already on the device."""
        return str(local.resolve())

    def path(self, name: str) -> str:
        """Returns the path for ``name`` in the working folder, which exists between enter and exit."""
        if self._folder is None:
            raise DeviceError(f"{self.address.name} is not connected", remedy="enter the target with 'with'")
        return str(self._folder / name)

    def run(
        self, command: Sequence[str], *, time_limit_s: float, environment: Mapping[str, str] | None = None
    ) -> Completed:
        """Runs a command in a session of its own, so that the time limit and Ctrl-C end all of its children too."""
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                f"'{command[0]}' does not start on {self.address.name}: {error.strerror}", remedy="check that it exists"
            ) from error
        try:
            stdout, stderr = process.communicate(timeout=time_limit_s)
        except subprocess.TimeoutExpired as error:
            raise DeviceError(
                f"'{Path(command[0]).name}' did not end within {time_limit_s:g} s on {self.address.name} and was ended",
                remedy="ask for fewer runs or a longer time limit",
            ) from error
        finally:
            end_group(process)
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        return Completed(process.returncode, stdout, stderr, time.monotonic() - started)

    def pull(self, remote: str, local: Path) -> None:
        """Copies a file out of the working folder."""
        try:
            shutil.copyfile(remote, local)
        except FileNotFoundError as error:
            raise DeviceError(
                f"{remote} is not on {self.address.name}; expected the result of a run", remedy="run again with --debug"
            ) from error

    def has_modules(self, modules: Sequence[str]) -> bool:
        """Returns True: it is the interpreter that runs us, and a missing package is reported by name."""
        return True

    def reconnect(self) -> None:
        """Does nothing: this machine cannot be lost."""

    def conditions(self) -> Conditions:
        """Reads this machine's load, clocks and limits."""
        return host_conditions()

    def fingerprint(self) -> dict[str, str]:
        """Returns the machine's fingerprint."""
        return dict(machine())
