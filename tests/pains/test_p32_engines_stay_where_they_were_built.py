"""P32: an engine refuses to load on another GPU or TensorRT. It is built on the device and never reused elsewhere."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from devices import jetson
from devices.conditions import Conditions
from devices.targets.target import Completed


def device(version: str, board: str, mode: str) -> Mock:
    target = Mock()
    target.kept = lambda name: f"/w/{name}"
    target.fingerprint = lambda: {"model": board}
    target.conditions = lambda: Conditions(clock_s=0, cores=6, power_mode=mode)
    banner = f"&&&& RUNNING TensorRT.trtexec [TensorRT v{version}]"
    target.run = lambda command, **limits: Completed(0, banner, "", 0.1)
    target.ask = lambda script: Completed(0, "/usr/bin/trtexec\n", "", 0.1)  # and the cache has every key
    return target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "build.json").write_text("{}", encoding="utf-8")
    (tmp_path / "model.onnx").write_bytes(b"one")
    return tmp_path


def test_model_version_board_and_power_mode_each_make_another_engine(folder: Path) -> None:
    usual = ("100300", "Orin Nano", "15W")
    changed = [usual, ("100700", "Orin Nano", "15W"), ("100300", "Orin NX", "15W"), ("100300", "Orin Nano", "MAXN")]
    keys = [jetson.device_engine(device(*facts), folder).key for facts in changed]
    (folder / "model.onnx").write_bytes(b"another")
    keys.append(jetson.device_engine(device(*usual), folder).key)
    assert len(set(keys)) == 5
    (folder / "model.onnx").write_bytes(b"one")
    assert jetson.device_engine(device(*usual), folder).key == keys[0]
