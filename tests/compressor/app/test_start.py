"""A command loads only what it needs: those that read what is there start without PyTorch."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.history import append, entry_of
from tests.benchmarks.measurements import measurement

LISTS = """
import sys
from compressor.app.cli import main
try:
    main()
finally:
    print("loaded:", *sorted({"torch", "transformers"} & sys.modules.keys()), file=sys.stderr)
"""


def loaded_by(*arguments: object) -> tuple[str, list[str]]:
    """Returns stdout of a command, and the heavy packages that it loaded."""
    command = [sys.executable, "-c", LISTS, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr.rsplit("loaded:", 1)[1].split()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    file = tmp_path / "history.sqlite"
    append(file, [entry_of(measurement([1.0, 1.1] * 10), recorded="2026-01-01T00:00:00+00:00")])
    return file


def test_version_devices_doctor_and_history_do_without_pytorch(store: Path) -> None:
    for arguments, shown in (
        (["--version"], "compressor "),
        (["devices", "list"], "snapdragon-865"),
        (["doctor"], "torch"),
        (["history", store], "p95"),
    ):
        output, loaded = loaded_by(*arguments)
        assert shown in output
        assert loaded == [], arguments


def test_backends_that_only_read_do_without_pytorch() -> None:
    code = (
        "import sys; from typing import get_args; from compressor.core.artifact import Format; "
        "from export.backend import backend_for; [backend_for(name) for name in get_args(Format)]; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["False"], done.stderr


def test_inspect_and_a_gate_on_size_do_without_pytorch(onnx_artifact: Path, tmp_path: Path) -> None:
    budget = tmp_path / "budgets.yaml"
    budget.write_text("version: 1\nbudgets:\n  - {device: host, size_mb: 100}\n")
    assert loaded_by("inspect", onnx_artifact)[1] == []
    assert loaded_by("gate", onnx_artifact, "--budget", budget)[1] == []
