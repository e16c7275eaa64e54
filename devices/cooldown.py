"""A pause before each process, until a device that a process before it has warmed is as cool as at first."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from devices.conditions import Conditions, slowed_down

_LOG = logging.getLogger(__name__)
WARMER_C = 5.0
"""Degrees above the first reading at which a pause begins to be needed."""
POLL_S = 5.0


def cool_down(
    read: Callable[[], Conditions],
    first: Conditions,
    *,
    limit_s: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Conditions, ...]:
    """Waits until a device is neither throttled nor much warmer than at first, for at most ``limit_s``.

    A device that tells neither temperature nor thermal status is not waited for. Giving up is no error: what is
    measured then is judged by the readings. So is what was measured just before: a device that is throttled when a
    process has ended was throttled while it ran, however cool it is after the pause.

    Args:
        read: reads the device.
        first: the reading before the first process.
        limit_s: the longest pause.
        sleep: waits; replaced in tests.
        clock: tells the time; replaced in tests.

    Returns:
        The reading before the pause and, where there was one, the reading after it.
    """
    started = clock()
    found = at_once = read()
    while too_warm(found, first) and clock() - started < limit_s:
        _LOG.info("cooling down: %s °C, thermal status %s", found.hottest_c, found.thermal_status)
        sleep(POLL_S)
        found = read()
    return (at_once,) if found is at_once else (at_once, found)


def too_warm(now: Conditions, first: Conditions) -> bool:
    """Returns whether a device should rest before the next process."""
    if slowed_down([first, now]) is not None and slowed_down([first]) is None:
        return True
    shared = now.temperatures_c.keys() & first.temperatures_c.keys()
    return any(now.temperatures_c[name] > first.temperatures_c[name] + WARMER_C for name in shared)
