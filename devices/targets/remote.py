"""A device at the end of a link: a folder of its own there, files by content, commands under a supervisor.

On the device everything lives below one folder (``Link.base``): ``store/`` keeps pushed files under their content's
hash, so that a file travels once; ``engines/`` keeps what was built there; both forget what a week has not used.
``work-…/`` belongs to one connection and is removed when it ends. Nothing else on the device is touched.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from compressor.core.errors import DeviceError, UsageError
from compressor.core.hashing import combine, file_hashes, sha256_file
from devices.conditions import Conditions
from devices.profiles import DeviceAddress
from devices.targets.link import Link, last_line, lost
from devices.targets.supervisor import GRACE_S, ended, supervised
from devices.targets.target import Completed, ConnectionLostError

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
_MARGIN_S = 20.0
"""How much longer than the device's own time limit we wait for its report."""
_ASK_S = 60.0
_IMPORT_S = 180.0
_TRIES = 3
_SLOWEST_MB_S = 0.5
_FULL = "No space left on device"
_HELLO = """
umask 077
base={base}
work=$base/work-{token}
mkdir -p "$base/store" "$work" || exit 1
command -v setsid >/dev/null || {{ echo 'this device has no setsid' >&2; exit 1; }}
find "$base/store" -type f -mtime +7 -exec rm -f {{}} + 2>/dev/null
find "$base/engines" -mindepth 1 -maxdepth 1 -mtime +7 -exec rm -rf {{}} + 2>/dev/null
find "$base" -maxdepth 1 -name 'work-*' -mtime +1 -exec rm -rf {{}} + 2>/dev/null
printf '%s\\n' "$base" "$work" "$(uname -m)" "$(command -v python3)"
"""
_STORE = """
part={part}; file={file}
if [ -f "$part" ]; then
  set -- $(sha256sum < "$part")
  [ "$1" = {digest} ] || {{ rm -f "$part"; echo 'it arrived damaged' >&2; exit 1; }}
  chmod {mode} "$part" && mv -f "$part" "$file" || exit 1
fi
[ -f "$file" ] || exit 1
"""


class RemoteTarget:
    """A device over ``adb`` or ``ssh``; connected between enter and exit.

    Args:
        address: which device.
        link: the way to it.
    """

    def __init__(self, address: DeviceAddress, link: Link) -> None:
        self.address = address
        self.python = ""
        self.machine = ""
        """Processor architecture as ``uname -m`` says it."""
        self._link = link
        self._base = self._work = ""
        self._hashed: dict[tuple[str, int, int], str] = {}
        self._stored: set[str] = set()
        self._trees: set[str] = set()
        self._imports: dict[str, bool] = {}

    def __enter__(self) -> RemoteTarget:
        try:
            self._link.connect()
            # Retried like any other question; a folder that the lost try may have left is swept up later.
            hello = self.ask(_HELLO.format(base=self._link.base, token=secrets.token_hex(8)))
            if hello.returncode != 0:
                raise self._refused("its working folder", last_line(hello.stderr))
            lines = hello.stdout.splitlines()
            self._base, self._work, self.machine = lines[:3]
            self.python = lines[3] if len(lines) > 3 else ""
            self._check_architecture()
        except BaseException:
            self._link.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.ask(f"rm -rf {shlex.quote(self._work)}")
        except DeviceError as failure:
            _LOG.warning("%s: %s is left there: %s", self.address.name, self._work, failure.message)
        finally:
            self._base = self._work = ""
            self._stored.clear()
            self._trees.clear()
            self._link.close()

    def path(self, name: str) -> str:
        """Returns the device's path for ``name`` in the working folder."""
        return f"{self._folder()}/{name}"

    def kept(self, name: str) -> str:
        """Returns the device's path for ``name`` beside all working folders, where it outlives the connection."""
        self._folder()
        return f"{self._base}/{name}"

    def push(self, local: Path) -> str:
        """Copies a file or folder there unless its content is there already; a file keeps only its suffix."""
        if not local.exists():
            raise UsageError(f"{local} is not there; it was to be sent to {self.address.name}", remedy="check the path")
        if local.is_file():
            return self._store([local])[local]
        files = file_hashes(local)
        tree = f"{self._folder()}/tree-{combine(files)[:32]}"
        if tree in self._trees:
            return tree
        stored = self._store([local / name for name in files])
        lines = [f"rm -rf {shlex.quote(tree)} && mkdir {shlex.quote(tree)}"]
        for name in files:
            link = f"{tree}/{name}"
            lines.append(f"mkdir -p {shlex.quote(link.rpartition('/')[0])}")
            lines.append(f"ln -s {shlex.quote(stored[local / name])} {shlex.quote(link)}")
        done = self.ask(" &&\n".join(lines))
        if done.returncode != 0:
            raise self._refused(str(local), last_line(done.stderr))
        self._trees.add(tree)
        return tree

    def run(
        self, command: Sequence[str], *, time_limit_s: float, environment: Mapping[str, str] | None = None
    ) -> Completed:
        """Runs a command in the working folder under the supervisor; a lost connection is not tried again here."""
        token = f"compressor{secrets.token_hex(8)}"
        script = supervised(
            command, token=token, time_limit_s=time_limit_s, folder=self._work or None, environment=environment or {}
        )
        started = time.monotonic()
        result = self._link.shell(script, time_limit_s=time_limit_s + GRACE_S + _MARGIN_S)
        seconds = time.monotonic() - started
        report = ended(result.stderr.decode("utf-8", "replace"), token)
        program = Path(command[0]).name
        if report is None:
            silent = "it no longer answers" if result.returncode is None else last_line(result.errors)
            raise lost(self.address.name, f"'{program}' ran", silent)
        if report.late:
            raise DeviceError(
                f"'{program}' did not end within {time_limit_s:g} s on {self.address.name} and was ended",
                remedy="ask for fewer runs or a longer time limit",
            )
        if report.absent:
            raise DeviceError(
                f"'{command[0]}' does not start on {self.address.name}: there is no such program",
                remedy="check that it exists there and may be run",
            )
        return Completed(report.returncode, result.stdout.decode("utf-8", "replace"), report.stderr, seconds)

    def ask(self, script: str, *, time_limit_s: float = _ASK_S) -> Completed:
        """Runs a few lines of shell that may safely run twice; after a lost connection, reconnects and tries again."""
        return self._again(lambda: self.run(["sh", "-c", script], time_limit_s=time_limit_s))

    def pull(self, remote: str, local: Path) -> None:
        """Copies a file from the device."""
        self._again(lambda: self._link.fetch(remote, local, time_limit_s=600))

    def has_modules(self, modules: Sequence[str]) -> bool:
        """Returns whether the device's Python can import all of these; asked once."""
        if not self.python:
            return False
        if (names := ", ".join(modules)) not in self._imports:
            command = [self.python, "-c", f"import {names}"]
            self._imports[names] = self._again(lambda: self.run(command, time_limit_s=_IMPORT_S)).returncode == 0
        return self._imports[names]

    def conditions(self) -> Conditions:
        """Reads the device's state."""
        from devices.readings import read_conditions

        return read_conditions(self)

    def fingerprint(self) -> dict[str, str]:
        """Returns what identifies the device."""
        from devices.readings import read_fingerprint

        return read_fingerprint(self)

    def reconnect(self) -> None:
        """Makes a new connection after one has broken."""
        self._link.connect()

    def _check_architecture(self) -> None:
        expected = self.address.profile.architecture
        if expected not in ("any", self.machine):
            raise DeviceError(
                f"{self.address.name}: this device is {self.machine}, the profile {self.address.profile.name} is "
                f"{expected}",
                remedy=f"name what it is; 'host@{self.address.transport}:…' measures any Linux machine",
            )

    def _store(self, files: Sequence[Path]) -> dict[Path, str]:
        """Sends what is not in the store yet; returns where each file is there."""
        self._folder()
        places = {file: self._place(file) for file in files}
        unknown = {place: file for file, place in places.items() if place not in self._stored}
        if unknown:
            test = 'if [ -f "$f" ]; then touch "$f"; else echo "$f"; fi'
            lines = [f"f={shlex.quote(place)}; {test}" for place in unknown]
            missing = [place for place in self.ask("\n".join(lines)).stdout.splitlines() if place in unknown]
            self._send({place: unknown[place] for place in missing})
            self._stored |= unknown.keys()
        return places

    def _place(self, file: Path) -> str:
        stat = file.stat()
        key = (str(file.resolve()), stat.st_mtime_ns, stat.st_size)
        if key not in self._hashed:
            self._hashed[key] = sha256_file(file)
        suffix = file.suffix if re.fullmatch(r"\.[A-Za-z0-9]{1,10}", file.suffix) else ""
        return f"{self._base}/store/{self._hashed[key]}{suffix}"

    def _send(self, files: Mapping[str, Path]) -> None:
        """Sends files to a part each and moves those whose hash is right to their place."""
        parts: list[str] = []
        moves = []
        try:
            for place, file in files.items():
                size_mb = file.stat().st_size / 1e6
                _LOG.info("sending %s (%.1f MB) to %s", file.name, size_mb, self.address.name)
                part = self.path(f"{secrets.token_hex(8)}.part")
                parts.append(shlex.quote(part))
                self._deliver(file, part, size_mb)
                mode = "700" if os.access(file, os.X_OK) else "600"
                digest = place.rpartition("/")[2].partition(".")[0]
                moves.append(_STORE.format(part=shlex.quote(part), file=shlex.quote(place), digest=digest, mode=mode))
            if moves:
                done = self.ask("\n".join(moves))
                if done.returncode != 0:
                    raise self._refused(", ".join(file.name for file in files.values()), last_line(done.stderr))
        except ConnectionLostError:
            raise
        except DeviceError:
            self.ask(f"rm -f {' '.join(parts)}")
            raise

    def _deliver(self, file: Path, part: str, size_mb: float) -> None:
        try:
            self._again(lambda: self._link.send(file, part, time_limit_s=_ASK_S + size_mb / _SLOWEST_MB_S))
        except ConnectionLostError:
            raise
        except DeviceError as error:
            raise self._refused(f"{file.name} ({size_mb:.1f} MB)", error.message) from error

    def _again(self, action: Callable[[], _T]) -> _T:
        for _ in range(_TRIES - 1):
            try:
                return action()
            except ConnectionLostError as error:
                _LOG.warning("%s; connecting again", error.message)
                self.reconnect()
        return action()

    def _refused(self, what: str, said: str) -> DeviceError:
        if _FULL in said:
            return DeviceError(
                f"{self.address.name} has no room for {what}: its storage is full", remedy="free space on the device"
            )
        return DeviceError(f"{self.address.name} did not take {what}: {said}", remedy="check its storage and rights")

    def _folder(self) -> str:
        if not self._work:
            raise DeviceError(f"{self.address.name} is not connected", remedy="enter the target with 'with'")
        return self._work
