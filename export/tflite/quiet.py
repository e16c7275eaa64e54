"""Keeps native converters from writing over the terminal, and keeps what they wrote for when something goes wrong."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)

_TAIL_LINES = 20
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def quiet_native() -> Iterator[None]:
    """Redirects stdout and stderr, of Python and of native code alike, to a file while the block runs.

    The text goes to the debug log; if the block raises, its last lines go to the error log, for a native converter
    reports its reasons there alone. The descriptors are the process's, so one thread at a time may redirect them.
    """
    with _ONE_AT_A_TIME:
        yield from _redirected()


def _redirected() -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(descriptor) for descriptor in (1, 2)]
    failed = True
    with tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace") as sink:
        try:
            for descriptor in (1, 2):
                os.dup2(sink.fileno(), descriptor)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
            failed = False
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for descriptor, original in zip((1, 2), saved, strict=True):
                os.dup2(original, descriptor)
                os.close(original)
            sink.seek(0)
            lines = sink.read().splitlines()
            if failed:
                logger.error("the converter's last lines:\n%s", "\n".join(lines[-_TAIL_LINES:]))
            else:
                logger.debug("the converter wrote:\n%s", "\n".join(lines))
