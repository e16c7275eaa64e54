"""Libraries that log what no user can act on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def errors_only(logger_name: str) -> Iterator[None]:
    """Raises a logger's level to ERROR for the length of the block."""
    logger = logging.getLogger(logger_name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def root_errors_only(package: str) -> Iterator[None]:
    """Drops what ``package`` logs below ERROR to the root logger; the records of everyone else pass.

    For packages without a logger of their own, such as onnxruntime's quantiser.
    """

    def admits(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR or package not in Path(record.pathname).parts

    root = logging.getLogger()
    root.addFilter(admits)
    try:
        yield
    finally:
        root.removeFilter(admits)
