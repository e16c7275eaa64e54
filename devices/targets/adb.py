"""Android phones over the ``adb`` of the Android platform tools, by USB or TCP.

adb's own server, keys and serials are used as they are. Phones need Android 7 or later: before, adb reports no exit
codes and mixes the two output streams.
"""

from __future__ import annotations

import re
from pathlib import Path

from compressor.core.errors import DeviceError
from devices.targets.link import client, last_line, lost, script_feed
from devices.targets.processes import ClientResult

_PACKAGE = "the Android platform tools (adb)"
_TCP = re.compile(r"[A-Za-z0-9._\-\[\]:%]+:\d{1,5}")
_BROKEN = re.compile(
    "offline|not found|no devices|closed|reset|protocol fault|broken pipe|failed to read|feature set|read from device|"
    "connect failed|cannot connect",
    re.IGNORECASE,
)
_MISSING = ("does not exist", "No such file", "failed to stat")


class AdbLink:
    """One phone.

    Args:
        serial: as ``adb devices`` shows it; ``HOST:PORT`` for a phone that listens on the network.
    """

    base = '"${TMPDIR:-/data/local/tmp}/compressor"'

    def __init__(self, serial: str) -> None:
        self.name = f"adb:{serial}"
        self._serial = serial

    def connect(self) -> None:
        """Starts adb's server where it does not run, connects over TCP where the serial says so, asks for the state."""
        self._adb("start-server", time_limit_s=30)
        said = ""
        if _TCP.fullmatch(self._serial):
            if self._state() != "device":
                self._adb("disconnect", self._serial, time_limit_s=10)
            said = last_line(self._adb("connect", self._serial, time_limit_s=20).stdout.decode("utf-8", "replace"))
        state = self._state()
        if state != "device":
            raise self._unreachable(state, said)
        features = self._device("features", time_limit_s=20).stdout.decode("utf-8", "replace").split()
        if "shell_v2" not in features:
            raise DeviceError(
                f"{self.name} runs an adb without exit codes; expected Android 7 or later", remedy="use a newer phone"
            )

    def shell(self, script: str, *, time_limit_s: float) -> ClientResult:
        """Feeds a script to ``sh`` there."""
        return client(
            ["adb", "-s", self._serial, "shell", "-T", "exec sh"],
            feed=script_feed(script), keep_open=True, time_limit_s=time_limit_s, package=_PACKAGE,
        )  # fmt: skip

    def send(self, local: Path, remote: str, *, time_limit_s: float) -> None:
        """Copies a file there."""
        result = self._device("push", str(local.resolve()), remote, time_limit_s=time_limit_s)
        self._check(result, f"{local.name} was sent")

    def fetch(self, remote: str, local: Path, *, time_limit_s: float) -> None:
        """Copies a file from there."""
        result = self._device("pull", remote, str(local.resolve()), time_limit_s=time_limit_s)
        self._check(result, f"{remote} was fetched")

    def close(self) -> None:
        """Leaves adb's server running: it is the user's."""

    def _state(self) -> str:
        result = self._device("get-state", time_limit_s=15)
        return result.stdout.decode("utf-8", "replace").strip() if result.returncode == 0 else result.errors

    def _unreachable(self, state: str, said: str) -> DeviceError:
        if "unauthorized" in state:
            problem, remedy = "has not allowed this computer", "unlock the phone and accept the USB debugging question"
        elif "offline" in state:
            problem, remedy = "is offline", "reconnect the cable, or: adb reconnect"
        elif "no permissions" in state:
            problem, remedy = "cannot be opened by this user", "add udev rules for it, see the adb documentation"
        else:
            problem, remedy = "is not there", "compare with the serials that 'adb devices' shows"
        detail = said or last_line(state)
        return DeviceError(f"{self.name} {problem}{f': {detail}' if detail else ''}", remedy=remedy)

    def _check(self, result: ClientResult, what: str) -> None:
        if result.returncode == 0:
            return
        said = _error(f"{result.errors}\n{result.stdout.decode('utf-8', 'replace')}")
        if any(sign in said for sign in _MISSING):
            raise DeviceError(f"{what}: there is no such file on {self.name}", remedy="run again with --debug")
        if result.returncode is None or _BROKEN.search(said):
            raise lost(self.name, what, said)
        raise DeviceError(f"{what}: {self.name} refused it: {said}", remedy="check the device's storage and rights")

    def _device(self, *arguments: str, time_limit_s: float) -> ClientResult:
        return self._adb("-s", self._serial, *arguments, time_limit_s=time_limit_s)

    def _adb(self, *arguments: str, time_limit_s: float) -> ClientResult:
        return client(
            ["adb", *arguments],
            feed=script_feed(""), keep_open=False, time_limit_s=time_limit_s, package=_PACKAGE,
        )  # fmt: skip


def _error(output: str) -> str:
    """Returns the line that tells what went wrong: a summary of the transfer may follow it."""
    return next((line for line in output.splitlines() if "error:" in line), last_line(output))
