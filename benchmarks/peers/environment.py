"""A virtual environment for a peer whose packages cannot live beside ours."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from compressor.core.errors import CompressorError

WORKERS = Path(__file__).parent / "workers"


class PeerError(CompressorError):
    """A peer that cannot be installed, or that fails on what it is given."""

    code = "peer"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A pinned set of packages and the script that runs in them."""

    name: str
    packages: tuple[str, ...]
    worker: str

    def python(self, environments: Path) -> Path:
        """Returns the environment's interpreter; the environment is made the first time.

        Raises:
            PeerError: pip cannot install the packages for this Python version.
        """
        folder = environments / self.name
        interpreter = folder / "bin" / "python"
        done = folder / ".installed"
        if done.is_file() and done.read_text(encoding="utf-8") == "\n".join(self.packages):
            return interpreter
        _check(subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True), self.name)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", *self.packages]
        _check(subprocess.run(install, capture_output=True, text=True), self.name)
        done.write_text("\n".join(self.packages), encoding="utf-8")
        return interpreter

    def run(self, environments: Path, job: dict[str, object], scratch: Path) -> dict[str, object]:
        """Runs the worker on a job and returns what it prints last, a JSON object.

        Raises:
            PeerError: the worker fails.
        """
        path = scratch / f"{self.name}.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        command = [str(self.python(environments)), str(WORKERS / self.worker), str(path)]
        finished = subprocess.run(command, capture_output=True, text=True)
        _check(finished, self.name)
        result: dict[str, object] = json.loads(finished.stdout.strip().splitlines()[-1])
        return result


def _check(finished: subprocess.CompletedProcess[str], name: str) -> None:
    if finished.returncode:
        tail = "\n".join(finished.stderr.strip().splitlines()[-8:])
        raise PeerError(
            f"the peer '{name}' ended with {finished.returncode}: {tail}",
            remedy="tflite-runtime needs Python 3.11 or older; see the packages in benchmarks/peers/run.py",
        )
