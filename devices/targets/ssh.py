"""Boards and Jetsons over the system's own ``ssh``: the user's keys, agents, jump hosts and aliases apply.

Files travel through ``cat`` on the same connection, so a device needs no sftp server. One connection is shared by all
commands of a target (``ControlMaster``); a later command makes a new one where it has broken.

The client's exit code 255 means both its own failure and a command's, so it is never read as the device's answer:
the device's supervisor reports the command's own (see :mod:`devices.targets.supervisor`).
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from compressor.core.errors import DeviceError
from devices.targets.link import client, file_feed, last_line, lost, script_feed
from devices.targets.processes import ClientResult

COMMAND_VARIABLE = "COMPRESSOR_SSH"
"""Environment variable with the ssh command and options to use, e.g. ``ssh -F my_config``, as git's GIT_SSH_COMMAND."""
_FAILED = 255
_MISSING = 44
_ALIVE_S = 5
_WITH_PORT = re.compile(r"(?P<host>[^:]+):(?P<port>\d{1,5})")
# Before this line the account's login shell may have printed what its start-up files say, a greeting for example.
_BEGINS = b"compressor begins\n"
# One constant line for whatever login shell the account has; the path comes on standard input, before the content.
_RECEIVE = "exec sh -c 'IFS= read -r path && exec cat > \"$path\"'"
_REMEDIES = (
    ("Permission denied", "set up a key: ssh-copy-id {where}"),
    ("Host key verification failed", "log in once by hand and accept the host's key: ssh {where}"),
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", "check that it is the same device, then: ssh-keygen -R HOST"),
    ("Could not resolve hostname", "check the name, or add it to ~/.ssh/config"),
    ("Connection refused", "start sshd on the device and check the port"),
    ("timed out", "check that the device is on and in this network"),
    ("No route to host", "check that the device is on and in this network"),
)


class SshLink:
    """One account on one host.

    Args:
        where: ``USER@HOST``, ``HOST``, an alias of the user's ssh configuration, or any of them with ``:PORT``.
    """

    base = '"${XDG_CACHE_HOME:-$HOME/.cache}/compressor"'

    def __init__(self, where: str) -> None:
        self.name = f"ssh:{where}"
        found = _WITH_PORT.fullmatch(where)
        self._host: str = found["host"] if found else where
        self._port: str | None = found["port"] if found else None
        self._sockets: Path | None = None

    def connect(self) -> None:
        """Logs in, or checks that the shared connection still answers."""
        result = self.shell("exit 0\n", time_limit_s=30)
        if result.returncode == 0:
            return
        said = last_line(result.errors) or ("no answer" if result.returncode is None else "it ended the session")
        remedy = next((text for sign, text in _REMEDIES if sign in result.errors), "try by hand: ssh {where}")
        where = f"{f'-p {self._port} ' if self._port else ''}{shlex.quote(self._host)}"
        raise DeviceError(f"{self.name} is not reached: {said}", remedy=remedy.format(where=where))

    def shell(self, script: str, *, time_limit_s: float) -> ClientResult:
        """Feeds a script to ``sh`` there; what the login shell printed before it is left out of the output."""
        result = client(
            [*self._command(), "exec sh"],
            feed=script_feed(f"echo '{_BEGINS.decode().strip()}'\n{script}"), keep_open=True,
            time_limit_s=time_limit_s, package="an OpenSSH client",
        )  # fmt: skip
        return replace(result, stdout=result.stdout.partition(_BEGINS)[2])

    def send(self, local: Path, remote: str, *, time_limit_s: float) -> None:
        """Copies a file there."""
        header = remote.encode("utf-8", "surrogateescape") + b"\n"
        result = client(
            [*self._command(), _RECEIVE],
            feed=file_feed(local, header), keep_open=False, time_limit_s=time_limit_s, package="an OpenSSH client",
        )  # fmt: skip
        self._check(result, f"{local.name} was sent")

    def fetch(self, remote: str, local: Path, *, time_limit_s: float) -> None:
        """Copies a file from there."""
        path = shlex.quote(remote)
        result = self.shell(f"{{ [ -f {path} ] || exit {_MISSING}; exec cat < {path}; }}\n", time_limit_s=time_limit_s)
        self._check(result, f"{remote} was fetched")
        local.write_bytes(result.stdout)

    def close(self) -> None:
        """Ends the shared connection."""
        if self._sockets is None:
            return
        with contextlib.suppress(DeviceError):
            client(
                [*self._command("-O", "exit")],
                feed=script_feed(""), keep_open=False, time_limit_s=10, package="an OpenSSH client",
            )  # fmt: skip
        shutil.rmtree(self._sockets, ignore_errors=True)
        self._sockets = None

    def _command(self, *control: str) -> list[str]:
        if self._sockets is None:
            # A socket's path may have 100 characters at most, so not the user's TMPDIR, which may be long.
            self._sockets = Path(tempfile.mkdtemp(prefix="compressor-ssh-", dir="/tmp"))
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": "10",
            "ServerAliveInterval": str(_ALIVE_S),
            "ServerAliveCountMax": "3",
            "ControlMaster": "auto",
            "ControlPersist": "60",
            "ControlPath": str(self._sockets / "%C"),
            "RequestTTY": "no",
            "EscapeChar": "none",
        }
        program = shlex.split(os.environ.get(COMMAND_VARIABLE, "")) or ["ssh"]
        pairs = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        port = ["-p", self._port] if self._port else []
        return [*program, *pairs, *port, *control, "--", self._host]

    def _check(self, result: ClientResult, what: str) -> None:
        if result.returncode == 0:
            return
        if result.returncode in (None, _FAILED):
            raise lost(self.name, what, last_line(result.errors))
        if result.returncode == _MISSING:
            raise DeviceError(f"{what}: there is no such file on {self.name}", remedy="run again with --debug")
        raise DeviceError(
            f"{what}: {self.name} refused it: {last_line(result.errors)}", remedy="check the device's disk and rights"
        )
