"""Terminal output: results on stdout, progress and errors on stderr, tables on a terminal and in a log alike."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from compressor.core.errors import CompressorError, StageError
from compressor.pipeline import Listener, StageRecord
from compressor.processes import processes
from compressor.recipe import StageEntry
from compressor.stage import Progress as StageProgress

SCHEMA_VERSION = 1
INTERRUPTED = 130
BROKEN_PIPE = 141
INTERNAL_ERROR = 70
"""A defect of ours (EX_SOFTWARE of sysexits.h): never to be read as a verdict."""
_PLAIN_EVERY_S = 15.0
"""Seconds between two progress lines where there is no terminal."""

_LOG_WIDTH = 160
"""Columns where there is no terminal to ask."""


class _Console(Console):
    """Leaves a broken pipe to :func:`errors`: rich would end with exit code 1, which says "over budget" here."""

    def on_broken_pipe(self) -> None:
        """Raises the error that rich has caught."""
        raise BrokenPipeError


def _console(*, stderr: bool) -> Console:
    """Text as it is: a ``[`` in a path or a remedy is no markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _LOG_WIDTH
    # A terminal would break a line in the middle of a word; a log or a pipe keeps it whole.
    return _Console(stderr=stderr, markup=False, highlight=False, soft_wrap=width is not None, width=width)


stdout = _console(stderr=False)
stderr = _console(stderr=True)


def print_json(value: BaseModel | Sequence[BaseModel] | dict[str, Any]) -> None:
    """Writes one JSON document to stdout; a mapping gets ``schema_version``."""
    if isinstance(value, BaseModel):
        document: Any = value.model_dump(mode="json")
    elif isinstance(value, dict):
        document = value
    else:
        document = [item.model_dump(mode="json") for item in value]
    if isinstance(document, dict):
        document = {"schema_version": SCHEMA_VERSION, **document}
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def print_error(code: str, message: str, remedy: str) -> None:
    """Writes an error as the JSON document of a command that failed."""
    print_json({"error": {"code": code, "message": message, "remedy": remedy}})


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None, whole: Sequence[str] = ()
) -> None:
    """Writes a table to stdout. Where it is too wide, cells are wrapped; nothing is cut off.

    Args:
        columns: names; one with a leading ``>`` holds figures and is set right.
        rows: the cells; None is shown as a dash.
        title: a line above.
        whole: names of columns that are wrapped last.
    """
    shown = Table(
        title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=any(columns)
    )
    for column in columns:
        side: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        shown.add_column(column.lstrip(">"), justify=side, no_wrap=column in whole, overflow="fold")
    for row in rows:
        shown.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    stdout.print(shown)


def say(text: str) -> None:
    """Writes one line of progress to stderr."""
    stderr.print(text)


@contextmanager
def errors(*, as_json: bool, debug: bool) -> Iterator[None]:
    """Ends the process with one message and the documented exit code when a user's error is raised.

    A terminate signal is treated like Ctrl-C, so that a job that is cancelled leaves nothing half-written either. Of
    several processes only the main one speaks, but for what another one met by itself.
    """
    team = processes()

    def interrupt(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except CompressorError as error:
        if debug:
            traceback.print_exc()
        if not team.is_main:
            if not isinstance(error, StageError):  # that one is raised in all of them
                stderr.print(f"process {team.index}: error: {error.message}")
            raise SystemExit(error.exit_code) from None
        if as_json:
            print_error(error.code, error.message, error.remedy)
        stderr.print(f"error: {error.message}", style="bold red")
        stderr.print(f"what to do: {error.remedy}")
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        if team.is_main:
            stderr.print("interrupted; what was finished is kept, nothing is half-written")
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # Whoever read stdout has gone: end as a process that the signal ends, and let nothing more be flushed there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(BROKEN_PIPE) from None
    except Exception as error:
        if debug:
            traceback.print_exc()
        message = f"internal error: {type(error).__name__}: {error}"
        if not team.is_main:
            stderr.print(f"process {team.index}: {message}")
            raise SystemExit(INTERNAL_ERROR) from None
        if as_json:
            print_error("internal", message, "run again with --debug")
        stderr.print(message, style="bold red")
        stderr.print("what to do: run again with --debug and report what it shows")
        raise SystemExit(INTERNAL_ERROR) from None
    finally:
        signal.signal(signal.SIGTERM, earlier)


def show_logs(verbose: bool) -> None:
    """Sends our own warnings (with ``verbose``, all messages) to stderr; other libraries' noise is left out."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    handler.setLevel(logging.ERROR if not processes().is_main else logging.INFO if verbose else logging.WARNING)
    for name in ("compressor", "export", "devices", "benchmarks"):
        logging.getLogger(name).handlers = [handler]
        logging.getLogger(name).setLevel(logging.INFO)
        logging.getLogger(name).propagate = False
    logging.getLogger().addHandler(logging.NullHandler())
    for name in ("torch", "torch.utils._pytree"):  # the second warns at import, which resets the level of the first
        logging.getLogger(name).setLevel(logging.ERROR)


class Narrator:
    """Tells a run as it goes: a bar on a terminal, a plain line now and then elsewhere."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._bar: Progress | None = None
        self._started = 0.0

    def listener(self) -> Listener:
        """Returns the hooks for the pipeline."""
        return Listener(stage_started=self._start, stage_finished=self._finish, progress=lambda _: self.progress())

    def progress(self) -> StageProgress:
        """Returns where one piece of work tells how far it is."""
        if self._quiet:
            return lambda done, total, note="": None
        return self._on_bar() if stderr.is_terminal else self._in_lines()

    def close(self) -> None:
        """Takes the bar off the screen."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _start(self, entry: StageEntry) -> None:
        self._started = time.monotonic()
        if not self._quiet:
            say(f"▸ {entry.id}")

    def _finish(self, entry: StageEntry, record: StageRecord) -> None:
        self.close()
        if not self._quiet:
            took = f"{time.monotonic() - self._started:.0f} s" if record.status == "ran" else "unchanged"
            say(f"✓ {entry.id}: {record.status} ({took})")

    def _on_bar(self) -> StageProgress:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        task: TaskID | None = None

        def tell(done: int, total: int, note: str = "") -> None:
            nonlocal task
            if self._bar is None or task is None:
                self._bar = Progress(*columns, console=stderr, transient=True)
                self._bar.start()
                task = self._bar.add_task("", total=total)
            self._bar.update(task, completed=done, total=total, description=note or "working")
            if done >= total:
                self.close()

        return tell

    def _in_lines(self) -> StageProgress:
        last = time.monotonic()
        last_note = ""

        def tell(done: int, total: int, note: str = "") -> None:
            nonlocal last, last_note
            now = time.monotonic()
            step = note.partition(" loss")[0]
            if now - last >= _PLAIN_EVERY_S or (step != last_note and total < 50):
                say(f"  {done}/{total} {note}")
                last, last_note = now, step

        return tell
