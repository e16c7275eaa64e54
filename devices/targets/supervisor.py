"""The script that runs a command on a device, ends it in time or when we are gone, and reports how it ended.

Transports differ in what they tell of a command's end (ssh's 255, adb's 0 of old phones) and none ends a command
whose client is gone. So the device does it itself, with nothing but a POSIX shell and ``setsid``:

- the command runs in a session of its own, so that it and all of its children can be ended as one group;
- one watcher waits for the time limit; another for the end of the script's standard input, which this side holds open:
  a broken connection, a killed client or a pulled cable ends the command within moments;
- the last line on standard error, marked with a token of this run, says how the command ended. No such line: the
  connection broke.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compressor.core.errors import UsageError

GRACE_S = 2
"""Seconds between the polite and the certain end of a command."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCRIPT = """{{
exec 3<&0 </dev/null
{folder}{exports}
setsid sh -c 'command -v "$1" >/dev/null 2>&1 || {{ echo "$0 absent" >&2; exit 127; }}; exec "$@"' \\
  {token} {command} 3<&- &
job=$!
setsid sh -c 'cat >/dev/null; kill -9 -"$1" "$1"' sh "$job" <&3 >/dev/null 2>&1 3<&- &
there=$!
setsid sh -c 'sleep "$1"; echo "$2 late" >&3; kill -15 -"$3"; sleep {grace}; kill -9 -"$3" "$3"' \\
  sh {limit} {token} "$job" >/dev/null 3>&2 2>/dev/null &
clock=$!
exec 3<&-
wait "$job"; code=$?
kill -9 -"$there" -"$clock" "$there" "$clock" 2>/dev/null
kill -9 -"$job" 2>/dev/null
wait 2>/dev/null
printf '\\n%s %s\\n' {token} "$code" >&2
exit 0
}}
"""


@dataclass(frozen=True)
class Ended:
    """How a supervised command ended."""

    returncode: int
    late: bool
    """The time limit ended it."""
    absent: bool
    """There is no such program."""
    stderr: str
    """The command's own, without the marks."""


def supervised(
    command: Sequence[str], *, token: str, time_limit_s: float, folder: str | None, environment: Mapping[str, str]
) -> str:
    """Returns the script for one command.

    Args:
        command: program and arguments, any text but NUL.
        token: marks this run's report; letters and digits.
        time_limit_s: when the command is ended.
        folder: where it runs; None: where the shell starts.
        environment: variables to set.

    Raises:
        UsageError: a NUL in an argument, or a name that is no variable's.
    """
    wrong = [word for word in (*command, *environment.values()) if "\0" in word]
    wrong += [name for name in environment if not _NAME.fullmatch(name)]
    if wrong:
        raise UsageError(f"{wrong[0]!r} can be no argument or variable of a program", remedy="mend it")
    exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
    return _SCRIPT.format(
        folder=f"cd {shlex.quote(folder)} || exit 1\n" if folder else "",
        exports=exports,
        command=" ".join(map(shlex.quote, command)),
        limit=max(1, round(time_limit_s)),
        token=token,
        grace=GRACE_S,
    )


def ended(stderr: str, token: str) -> Ended | None:
    """Reads the report at the end of a run's standard error; None where there is none: the connection broke."""
    found = re.search(rf"\n?^{token} (\d+)\r?$\n?", stderr, re.MULTILINE)
    if found is None:
        return None
    own, late = re.subn(rf"^{token} late\r?\n", "", stderr[: found.start()], flags=re.MULTILINE)
    own, absent = re.subn(rf"^{token} absent\r?\n", "", own, flags=re.MULTILINE)
    code = int(found[1])
    signalled = 128 < code <= 128 + 64
    return Ended(returncode=128 - code if signalled else code, late=late > 0, absent=absent > 0, stderr=own)
