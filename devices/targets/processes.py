"""Local processes in a group of their own: run with a time limit, ended as a group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

_GRACE_S = 2.0
"""How long a process group may take to end by itself after SIGTERM."""

Feed = Callable[[IO[bytes]], None]
"""Writes a client's standard input."""


@dataclass(frozen=True)
class ClientResult:
    """How a client program (``adb``, ``ssh``) ended."""

    returncode: int | None
    """None: it did not end in time and was ended."""
    stdout: bytes
    stderr: bytes

    @property
    def errors(self) -> str:
        """What it said on standard error, as text."""
        return self.stderr.decode("utf-8", "replace").strip()


def run_client(command: Sequence[str], *, feed: Feed, keep_open: bool, time_limit_s: float) -> ClientResult:
    """Runs a client program.

    Output goes to files, not pipes: what a client leaves in the background (the ssh connection shared by later
    commands, the adb server) would hold a pipe open and so hang us.

    Args:
        command: program and arguments, never through a shell.
        feed: writes its standard input, in a thread of its own so that a client that does not read cannot hold us up.
        keep_open: leave its standard input open until it ends; the other side then sees our end as end of file.
        time_limit_s: after this many seconds the client and its children are ended.

    Raises:
        OSError: the program does not start.
    """
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, start_new_session=True
        )
        writer = threading.Thread(target=_write, args=(process, feed, keep_open), daemon=True)
        writer.start()
        returncode: int | None = None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                returncode = process.wait(timeout=time_limit_s)
        finally:
            end_group(process)
            writer.join(timeout=_GRACE_S)
            if process.stdin is not None:
                with contextlib.suppress(OSError, ValueError):
                    process.stdin.close()
        stdout.seek(0)
        stderr.seek(0)
        return ClientResult(returncode, stdout.read(), stderr.read())


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Ends what is left of a process group: first politely, then for certain."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE_S)
        if not _group_exists(process.pid):
            break
    process.wait()


def _write(process: subprocess.Popen[bytes], feed: Feed, keep_open: bool) -> None:
    stream = process.stdin
    if stream is None:
        return
    with contextlib.suppress(OSError, ValueError):
        feed(stream)
        stream.flush()
        if not keep_open:
            stream.close()


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
