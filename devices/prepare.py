"""``--prepare``: puts a device into a steadier state for a measurement, and puts everything back.

Nothing is changed unless it was asked for. What a change replaces is read first; all changes are undone in reverse
order when the measurement ends, however it ends, each on its own so that one failure leaves no other undone. The lines
that undo them are also written to the device before the first change, so that ``restore`` can be run by the next
connection if this process dies.

- Android 11 and later: the platform's fixed performance mode (sustained clocks, for benchmarks).
- Jetson: ``jetson_clocks``, which locks all clocks at the power mode's highest; the state before is stored by itself.
- Linux boards: the ``performance`` governor on every cluster.

Jetson and Linux changes need password-less sudo on the device.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compressor.core.errors import DeviceError
from devices.targets.remote import RemoteTarget
from devices.targets.target import Completed, Target

_LOG = logging.getLogger(__name__)
RESTORE = "restore.sh"
_NOT_ALLOWED = "leave --prepare out, or allow sudo without a password on the device"
_POLICIES = "/sys/devices/system/cpu/cpufreq/policy"


@dataclass(frozen=True)
class Change:
    """One thing that is set on a device."""

    what: str
    apply: str
    """Shell lines; they fail where it cannot be done."""
    undo: str


def changes_for(target: RemoteTarget) -> list[Change]:
    """Returns what would be changed on a device, with what puts it back, after reading the present state."""
    kind = target.address.profile.kind
    if kind == "android":
        if target.ask("cmd power help | grep -q fixed-performance").returncode != 0:
            return []
        mode = "cmd power set-fixed-performance-mode-enabled"
        return [Change("fixed performance mode", f"{mode} true", f"{mode} false")]
    if kind == "jetson":
        kept = shlex.quote(target.kept("jetson_clocks.state"))
        return [
            Change(
                "jetson_clocks",
                f"sudo -n jetson_clocks --store {kept} && sudo -n jetson_clocks",
                f"[ ! -f {kept} ] || {{ sudo -n jetson_clocks --restore {kept} && sudo -n rm -f {kept}; }}",
            )
        ]
    return [
        Change(
            f"governor of {policy.rpartition('/')[2]}",
            _set_governor(policy, "performance"),
            _set_governor(policy, governor),
        )
        for policy, governor in _governors(target)
        if governor != "performance"
    ]


@contextmanager
def prepared(target: Target) -> Iterator[tuple[str, ...]]:
    """Changes an entered device for the time of the block; yields what was changed.

    Raises:
        DeviceError: a change failed (those before it have been undone), or one could not be undone.
    """
    if not isinstance(target, RemoteTarget):
        raise DeviceError(
            f"{target.address.name}: --prepare changes devices over adb or ssh only, not the machine you work at",
            remedy="set its governor yourself, or leave --prepare out",
        )
    restore(target)
    changes = changes_for(target)
    done: list[Change] = []
    dropped = False
    _remember(target, changes)
    try:
        for change in changes:
            _checked(target.ask(change.apply), target, f"{change.what} could not be set", remedy=_NOT_ALLOWED)
            done.append(change)
        yield tuple(change.what for change in changes)
    except GeneratorExit:
        dropped = True
        raise
    finally:
        try:
            _undo(target, done, changes)
        except DeviceError as error:
            if not dropped:
                raise
            # The block was never left: its process is ending, and nobody is there to tell.
            _LOG.warning("%s; the next measurement puts it back", error.message)


def restore(target: RemoteTarget) -> bool:
    """Undoes what a process that died has left changed; returns whether there was anything.

    Raises:
        DeviceError: it could not be undone; it stays written down.
    """
    script = shlex.quote(target.kept(RESTORE))
    if target.ask(f"[ -f {script} ]").returncode != 0:
        return False
    _LOG.warning("%s: putting back what an earlier measurement left changed", target.address.name)
    done = target.ask(f"sh {script} && rm -f {script}")
    problem = "what an earlier measurement left changed could not be put back"
    _checked(done, target, problem, remedy=f"on the device, by hand: sh {script}; rm {script}")
    return True


def _undo(target: RemoteTarget, done: list[Change], planned: list[Change]) -> None:
    script = shlex.quote(target.kept(RESTORE))
    # A change that failed half-way is undone as well; undoing what was not done is harmless.
    failed = []
    started = planned[: len(done) + 1]
    for change in reversed(started):
        result = target.ask(change.undo)
        if result.returncode != 0 and change in done:
            failed.append((change, result))
    if failed:
        change, result = failed[0]
        _checked(result, target, f"{change.what} could not be put back", remedy=f"by hand: {change.undo}")
    target.ask(f"rm -f {script}")


def _remember(target: RemoteTarget, changes: list[Change]) -> None:
    if not changes:
        return
    script = shlex.quote(target.kept(RESTORE))
    text = "\n".join([*(f"{change.undo} || failed=1" for change in reversed(changes)), "exit ${failed:-0}"])
    done = target.ask(f"printf '%s\\n' {shlex.quote(text)} > {script}")
    _checked(done, target, "what undoes --prepare could not be written down", remedy="check the device's storage")


def _checked(result: Completed, target: RemoteTarget, problem: str, *, remedy: str) -> None:
    if result.returncode != 0:
        said = (result.stderr or result.stdout).strip().splitlines()
        raise DeviceError(f"{target.address.name}: {problem}: {said[-1] if said else 'no message'}", remedy=remedy)


def _governors(target: RemoteTarget) -> list[tuple[str, str]]:
    listed = target.ask(
        f'for p in {_POLICIES}*; do [ -r "$p/scaling_governor" ] && echo "$p $(cat "$p/scaling_governor")"; done; :'
    )
    found = [line.rpartition(" ") for line in listed.stdout.splitlines()]
    return [(policy, governor) for policy, _, governor in found]


def _set_governor(policy: str, governor: str) -> str:
    file = shlex.quote(f"{policy}/scaling_governor")
    word = shlex.quote(governor)
    return f"{{ echo {word} > {file}; }} 2>/dev/null || echo {word} | sudo -n tee {file} >/dev/null"
