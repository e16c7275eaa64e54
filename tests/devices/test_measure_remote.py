"""A whole measurement over both ways: the board's own Python, and the phone's ARM64 bundle under qemu."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.budget import Budget
from benchmarks.gate import judge
from benchmarks.measure import measure, measurement_name
from benchmarks.statistics import summary
from benchmarks.subject import subject_of
from compressor.core.artifact import Artifact
from devices.runner import WarmUp
from tests.benchmarks.artifacts import tiny_artifact
from tests.devices.arm import bundle_or_skip, qemu
from tests.devices.phones import adb_server, board, needs_adb, needs_sshd, phone, program
from tests.models import SENTENCES

QUICK = WarmUp(min_runs=1, max_runs=2, max_seconds=0.2)
GOVERNOR = "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("remote") / "onnx-fp32")


@needs_sshd
def test_a_board_with_python_measures_with_its_own(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with board(tmp_path / "board", monkeypatch) as device:
        program(tmp_path / "board/bin", "python3", f'exec {sys.executable} "$@"')
        (found,) = measure([subject_of(artifact)], SENTENCES, device=device.address, runs=10, processes=2, warmup=QUICK)
        assert device.leftovers == []
    assert found.device == "host@ssh:board"
    assert found.runtime.startswith("onnxruntime ")
    assert len(found.runs) == 10
    assert found.runs.tokenize_ms is not None
    assert summary(found).total_p95_ms is not None
    assert found.conditions_after["readings_during"] == 2
    assert measurement_name(found) == "host-ssh_board-onnx-fp32"


@needs_adb
def test_a_phone_with_nothing_installed_measures_with_the_bundle(
    artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = " ".join(qemu())
    bundle_or_skip("aarch64", "onnxruntime")
    setsid = (
        f'case "$5" in */ld-linux-aarch64.so.1) shift 4; exec /usr/bin/setsid {emulator} "$@";; esac\n'
        'exec /usr/bin/setsid "$@"'
    )
    root = tmp_path / "phone"
    program(root / "bin", "setsid", setsid)
    program(root / "bin", "python3", "exit 1")
    with monkeypatch.context() as patch, adb_server(patch, tmp_path), phone(root) as device:
        patch.setenv("HOME", os.environ["HOME"])
        (found,) = measure([subject_of(artifact)], SENTENCES, device=device.address, runs=6, processes=2, warmup=QUICK)
        assert device.leftovers == []
        stored = list((root / "data/local/tmp/compressor/store").iterdir())
    assert sum(file.stat().st_size for file in stored) > 20e6
    assert found.runtime.startswith("onnxruntime ")
    assert len(found.runs) == 6
    assert all(value > 0 for value in found.runs.inference_ms)
    assert found.runs.tokenize_ms is None
    assert found.peak_memory_mb is not None
    figures = summary(found)
    assert figures.total_p95_ms is None
    assert figures.p95_ms > 0
    json.loads(figures.model_dump_json())
    quiet = found.model_copy(update={"invalid_reason": None})  # this machine, which plays the phone, may be busy
    (check,) = judge(Budget(device="mobile-cpu", artifact="*", total_p95_ms=5.0), artifact, quiet)
    assert check.verdict == "inconclusive"
    assert "does not report" in check.detail
