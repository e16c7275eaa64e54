"""What a way to a remote device has to offer, and how its failures are told apart from the device's own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

from compressor.core.errors import DeviceError
from devices.targets.processes import ClientResult, Feed, run_client
from devices.targets.target import ConnectionLostError


class Link(Protocol):
    """A way to a device's shell and files. It knows nothing of folders, time limits or models there."""

    name: str
    """What it leads to, for messages, e.g. ``adb:R5CT1234``."""
    base: str
    """A shell word for the folder on the device that is ours, expanded there."""

    def connect(self) -> None:
        """Makes the device reachable, also after a drop.

        Raises:
            DeviceError: it is not there, or does not let us in; the message says what to do.
        """
        ...

    def shell(self, script: str, *, time_limit_s: float) -> ClientResult:
        """Feeds ``script`` to ``sh`` on the device; its standard input stays open until the client ends.

        The script goes through no shell on the way and is no argument of any program, so nothing in it is expanded
        before the device's ``sh`` reads it.
        """
        ...

    def send(self, local: Path, remote: str, *, time_limit_s: float) -> None:
        """Copies one file to ``remote``, a path without line breaks.

        Raises:
            ConnectionLostError: the connection broke.
            DeviceError: the device could not write it.
        """
        ...

    def fetch(self, remote: str, local: Path, *, time_limit_s: float) -> None:
        """Copies one file from the device to ``local``.

        Raises:
            ConnectionLostError: the connection broke.
            DeviceError: there is no such file.
        """
        ...

    def close(self) -> None:
        """Lets go of what the connection holds on this machine. Never fails."""
        ...


def script_feed(script: str) -> Feed:
    """Returns a feed of a script's text, in UTF-8."""
    data = script.encode("utf-8", "surrogateescape")
    return lambda stream: _write(stream, data)


def file_feed(local: Path, header: bytes = b"") -> Feed:
    """Returns a feed of ``header`` and then a file's bytes."""

    def feed(stream: IO[bytes]) -> None:
        stream.write(header)
        with local.open("rb") as source:
            shutil.copyfileobj(source, stream, 1 << 20)

    return feed


def client(command: Sequence[str], *, feed: Feed, keep_open: bool, time_limit_s: float, package: str) -> ClientResult:
    """Runs a client program that may not be installed.

    Raises:
        DeviceError: it is not installed.
    """
    try:
        return run_client(command, feed=feed, keep_open=keep_open, time_limit_s=time_limit_s)
    except FileNotFoundError as error:
        raise DeviceError(
            f"the program '{command[0]}' is not installed; it reaches the device", remedy=f"install {package}"
        ) from error
    except (OSError, ValueError) as error:
        raise DeviceError(f"'{command[0]}' does not start: {error}", remedy="check the device's address") from error


def lost(name: str, what: str, said: str) -> ConnectionLostError:
    """Returns the error for a connection that broke."""
    detail = f": {said}" if said else ""
    return ConnectionLostError(
        f"the connection to {name} broke while {what}{detail}", remedy="check the cable or the network and try again"
    )


def last_line(text: str) -> str:
    """Returns the last line that says anything."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _write(stream: IO[bytes], data: bytes) -> None:
    stream.write(data)
