from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest

from benchmarks.studies.instructions import change, instructions_per_inference
from benchmarks.subject import subject_of
from compressor.core.errors import UsageError
from tests.benchmarks.artifacts import tiny_artifact
from tests.devices.arm import bundle_or_skip


@pytest.mark.skipif(
    shutil.which("valgrind") is None or platform.machine() != "x86_64",
    reason="valgrind is not installed (tests/system-packages.sh), or this is not x86-64",
)
def test_counts_repeat_and_grow_with_the_work(tmp_path: Path) -> None:
    bundle_or_skip("x86_64", "onnxruntime")
    small, large = (
        instructions_per_inference(subject_of(tiny_artifact(tmp_path / str(width), width=width)), tokens=16)
        for width in (32, 128)
    )
    again = instructions_per_inference(subject_of(tiny_artifact(tmp_path / "128", width=128)), tokens=16)
    assert abs(change(again, large)) < 0.02
    assert change(large, small) > 0.2
    assert str(small["runtime"]).startswith("onnxruntime ")
    assert not any("ms" in name for name in small)


def test_a_baseline_of_another_runtime_or_length_is_refused() -> None:
    found = {"instructions": 100, "tokens": 16, "runtime": "onnxruntime 1.32.0"}
    assert change({**found, "instructions": 110}, found) == pytest.approx(0.1)
    for other in ({"tokens": 32}, {"runtime": "onnxruntime 1.31.0"}):
        with pytest.raises(UsageError, match="baseline"):
            change(found, {**found, **other})


def test_without_valgrind_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UsageError, match="valgrind is not installed"):
        instructions_per_inference(subject_of(tiny_artifact(tmp_path / "a")), tokens=16)
