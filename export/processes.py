"""Independent jobs in processes of their own, side by side as far as memory and threads allow.

The processes are started as ``python -m export.processes`` instead of by :mod:`multiprocessing`, which would run the
user's main script again in each of them.
"""

from __future__ import annotations

import logging
import logging.handlers
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Generic, Protocol, TypeVar

from compressor.core.errors import StageError

ResultT = TypeVar("ResultT")
_LEVELS = (None, "torch", "torch.utils._pytree")
"""Loggers whose level a process takes over from its parent: the root, and what talks as soon as it is imported."""
_MESSAGE, _LOG, _RESULT, _ERROR = "message", "log", "result", "error"


class Send(Protocol):
    """Tells the parent process something while a job runs."""

    def __call__(self, message: Any) -> None:
        """Sends a value that can be pickled."""
        ...


@dataclass(frozen=True, kw_only=True)
class Job(Generic[ResultT]):
    """A function of a module, to be called with ``argument`` and a :class:`Send`."""

    name: str
    target: Callable[[Any, Send], ResultT]
    argument: Any
    memory_bytes: int
    """Predicted peak."""


def can_run_jobs() -> bool:
    """Returns whether a pipe can be handed to another process here."""
    return os.name == "posix"


def run_jobs(
    jobs: Sequence[Job[ResultT]], *, workers: int, memory_bytes: int, listener: Callable[[str, Any], None]
) -> list[ResultT]:
    """Runs jobs in at most ``workers`` processes and returns their results in order.

    A job starts as soon as its predicted peak fits beside those that run; one that fits nowhere runs alone. When one
    fails, or this process is interrupted, the others are killed: a job writes only where its parent cleans up.

    Args:
        jobs: what to do.
        workers: the most processes at a time.
        memory_bytes: what the predicted peaks of running jobs may add up to.
        listener: called with the job's name for each message it sends.

    Raises:
        Exception: whatever a job raised.
        StageError: a process ended without a result, killed by the system when memory runs out.
    """
    waiting = list(enumerate(jobs))
    running: dict[Connection, _Running] = {}
    results: dict[int, ResultT] = {}
    try:
        while waiting or running:
            for item in list(waiting):
                taken = sum(jobs[other.index].memory_bytes for other in running.values())
                fits = taken + item[1].memory_bytes <= memory_bytes
                if not running or (len(running) < workers and fits):
                    waiting.remove(item)
                    started = _start(*item)
                    running[started.connection] = started
            for connection in wait(list(running)):
                assert isinstance(connection, Connection)
                _receive(running, connection, jobs, results, listener)
    finally:
        for left in running.values():
            left.process.kill()
            left.process.wait()
            left.connection.close()
    return [results[index] for index in range(len(jobs))]


@dataclass(frozen=True)
class _Running:
    index: int
    process: subprocess.Popen[bytes]
    connection: Connection


def _start(index: int, job: Job[Any]) -> _Running:
    here, there = Pipe()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}  # noqa: PTH109
    command = [sys.executable, "-m", __name__, str(there.fileno())]
    process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL, env=environment)
    there.close()
    here.send({name: logging.getLogger(name).level for name in _LEVELS})
    here.send((job.target, job.argument))
    return _Running(index, process, here)


def _receive(
    running: dict[Connection, _Running],
    connection: Connection,
    jobs: Sequence[Job[ResultT]],
    results: dict[int, ResultT],
    listener: Callable[[str, Any], None],
) -> None:
    item = running[connection]
    try:
        kind, value = connection.recv()
    except (EOFError, ConnectionResetError):
        code = item.process.wait()
        raise StageError(
            f"the process that exports {jobs[item.index].name} ended without a result (exit code {code}); "
            "-9 means that the system killed it for want of memory",
            remedy="free some memory, or allow one thread, which exports one format after the other",
        ) from None
    if kind == _MESSAGE:
        listener(jobs[item.index].name, value)
    elif kind == _LOG:
        logging.getLogger(value.name).handle(value)
    elif kind == _ERROR:
        raise value
    else:
        results[item.index] = value
        del running[connection]
        item.process.wait()
        connection.close()


class _LogSender(logging.handlers.QueueHandler):
    """Hands log records to the parent, which knows where they go."""

    def enqueue(self, record: logging.LogRecord) -> None:
        """Sends a prepared record."""
        self.queue.send((_LOG, record))  # type: ignore[attr-defined]


class _Channel:
    """A connection that several threads write to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def send(self, value: tuple[str, Any]) -> None:
        with self._lock:
            self._connection.send(value)


def _work(descriptor: int) -> None:
    """Receives one job, does it, and sends what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    connection = Connection(descriptor)
    channel = _Channel(connection)
    for name, level in connection.recv().items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().addHandler(_LogSender(channel))  # type: ignore[arg-type]
    try:
        target, argument = connection.recv()
        threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
        answer = (_RESULT, target(argument, lambda message: channel.send((_MESSAGE, message))))
    except Exception as error:
        answer = (_ERROR, _portable(error))
    channel.send(answer)


def _end_with(connection: Connection) -> None:
    """Ends this process when its parent is gone."""
    for _ in _messages(connection):
        continue
    os._exit(1)


def _messages(connection: Connection) -> Iterator[Any]:
    try:
        while True:
            yield connection.recv()
    except (EOFError, OSError):
        return


def _portable(error: Exception) -> Exception:
    """Returns the error with its traceback as a note, or its text where it cannot be pickled."""
    import traceback

    trace = "".join(traceback.format_exception(error))
    error.add_note(trace)
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(trace)
    return error


if __name__ == "__main__":
    _work(int(sys.argv[1]))
