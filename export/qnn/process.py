"""A worker process that holds the vendor's libraries: what is asked of it, and what becomes of it."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

from compressor.core.errors import StageError

_WORKER = Path(__file__).with_name("worker.py")
_TAIL = 600


class HexagonProcess:
    """One process with the QNN compiler and the Hexagon simulator in it; ends with :meth:`close` or ``with``."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the process)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment,
        )  # fmt: skip

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Sends one request and returns its answer.

        Raises:
            StageError: the libraries refuse, or end the process.
        """
        content = pickle.dumps({"do": do, **request})
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the worker was started without pipes")
        try:
            stdin.write(struct.pack("<Q", len(content)) + content)
            stdin.flush()
            head = stdout.read(8)
        except BrokenPipeError:
            head = b""
        if len(head) < 8:
            raise StageError(
                f"the QNN libraries ended their process during '{do}' ({self._end()}): {self._said()}",
                remedy="choose another precision or device, or report this model",
            )
        answer: dict[str, Any] = pickle.loads(stdout.read(struct.unpack("<Q", head)[0]))
        if "error" in answer:
            raise StageError(
                f"the QNN libraries refuse to {do} this graph: {answer['error']}; {self._said()}",
                remedy="choose another precision or device, or report this model",
            )
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # what a process that ended had not read
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def __enter__(self) -> HexagonProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self) -> str:
        code = self._process.wait(timeout=10)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _said(self) -> str:
        self._log.seek(0)
        text = self._log.read().decode("utf-8", "replace")
        lines = [line for line in text.splitlines() if "LIBNATIVE" not in line]
        return " ".join(lines)[-_TAIL:].strip() or "no message"
