"""A Jetson for tests: a real sshd with a stand-in trtexec of each TensorRT version, and the tools a Jetson has."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.measure import measure
from benchmarks.subject import Subject, subject_of
from compressor.core.errors import ArtifactError, DeviceError
from compressor.core.hashing import sha256_file
from devices.jetson import device_engine
from devices.prepare import prepared, restore
from devices.profiles import DeviceAddress, load_profile
from devices.targets import target_for
from devices.targets.remote import RemoteTarget
from export.tensorrt.device.build_engine import Profile
from export.tensorrt.graphs import BuildGraph
from export.tensorrt.scripts import write_build_files
from tests.benchmarks.artifacts import tiny_artifact
from tests.devices import trtexec_stand_in
from tests.devices.phones import Device, board, needs_sshd, program
from tests.models import SENTENCES

pytestmark = needs_sshd
STATS = (
    "05-15-2025 18:30:28 RAM 6982/7620MB CPU [97%@1984,off] GR3D_FREQ 84%@[713] cpu@65.5C gpu@63.5C tj@65.5C "
    "VDD_IN 17946mW/15710mW"
)


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    artifact = tiny_artifact(tmp_path / "tensorrt-fp16")
    graph = BuildGraph(
        model="model.onnx", oldest=(8, 6), sha256={"model.onnx": sha256_file(artifact.model_path)}, products={}
    )
    write_build_files(
        artifact.path, graphs=[graph], inputs=["the_ids", "the_mask"], profiles=[Profile(1, 8, 8), Profile(9, 32, 32)],
        precision="fp16",
    )  # fmt: skip
    made = subject_of(artifact)
    return replace(made, runtime="tensorrt", model=artifact.path, format="tensorrt", precision="fp16")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    with board(tmp_path / "board", monkeypatch) as found:
        tools = tmp_path / "board/bin"
        program(tools, "uname", '[ "$1" = -m ] && echo aarch64 || exec /bin/uname "$@"')
        program(tools, "tegrastats", f"echo '{STATS}'; sleep 60")
        program(tools, "sudo", 'shift; exec "$@"')
        program(tools, "python3", "exit 1")
        power_mode(tmp_path, "25W")
        program(
            tools, "jetson_clocks",
            f'echo "$@" >> {tmp_path}/clocks; case "$1" in --show) echo "GPU MinFreq=306000000 MaxFreq=624750000";;'
            ' --store) echo kept > "$2";; --restore) grep -q kept "$2" || exit 1;; esac\n'
            f'echo "$1" >> {tmp_path}/succeeded',
        )  # fmt: skip
        address = DeviceAddress(profile=load_profile("jetson-orin-nano"), transport="ssh", where="board")
        yield replace_address(found, address)


def replace_address(device: Device, address: DeviceAddress) -> Device:
    device.address = address
    return device


def power_mode(folder: Path, name: str) -> None:
    program(folder / "board/bin", "nvpmodel", f"echo 'NV Power Mode: {name}'; echo 1")


def install(folder: Path, version: str, *, fails: bool = False) -> None:
    program(
        folder / "board/bin", "trtexec",
        f"export TRTEXEC_VERSION={version} TRTEXEC_BUILDS={folder}/builds {'TRTEXEC_FAILS=1' if fails else ''}\n"
        f'exec {sys.executable} {trtexec_stand_in.__file__} "$@"',
    )  # fmt: skip


@contextmanager
def entered(device: Device) -> Iterator[RemoteTarget]:
    with target_for(device.address) as target:
        assert isinstance(target, RemoteTarget)
        yield target


@pytest.mark.parametrize(("version", "dotted"), [("8601", "8.6.1"), ("110000", "11.0.0")])
def test_sentences_are_timed_at_their_length_with_the_device_s_trtexec(
    device: Device, subject: Subject, tmp_path: Path, version: str, dotted: str
) -> None:
    install(tmp_path, version)
    (found,) = measure([subject], SENTENCES, device=device.address, runs=8, processes=1)
    assert found.runtime == f"tensorrt {dotted} (trtexec)"
    assert found.runs.inference_ms == (trtexec_stand_in.EACH_MS,) * 8
    assert found.cold_ms == (trtexec_stand_in.FIRST_MS,)
    assert found.load_ms == (125.0,)
    assert set(found.runs.length) == {8, 32}
    assert found.runs.tokenize_ms is None
    assert found.conditions_before["power_mode"] == "25W"
    assert found.conditions_before["gpu_mhz"] == 713
    assert found.conditions_after["mean_power_mw_during"] == 17946
    assert found.conditions_before["temperatures_c"] == {"cpu": 65.5, "gpu": 63.5, "tj": 65.5}
    assert any("jetson_clocks is off" in note for note in found.conditions_after["notes"])
    assert found.fingerprint["architecture"] == "aarch64"


def test_an_engine_is_kept_for_its_model_version_and_power_mode(
    device: Device, subject: Subject, tmp_path: Path
) -> None:
    install(tmp_path, "100300")
    keys = []
    with entered(device) as target:
        for expected in (True, False):
            engine = device_engine(target, subject.model)
            assert engine.built is expected
            keys.append(engine.key)
        power_mode(tmp_path, "MAXN_SUPER")
        keys.append(device_engine(target, subject.model).key)
        install(tmp_path, "110000")
        keys.append(device_engine(target, subject.model).key)
        (subject.model / "labels.txt").write_text("other\n", encoding="utf-8")
        keys.append(device_engine(target, subject.model).key)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4
    assert (tmp_path / "builds").read_text(encoding="utf-8").split() == ["100300", "100300", "110000", "110000"]


def test_an_engine_that_a_week_has_not_used_is_removed(device: Device, subject: Subject, tmp_path: Path) -> None:
    install(tmp_path, "100300")
    engines = tmp_path / "board/cache/compressor/engines"
    with entered(device) as target:
        key = device_engine(target, subject.model).key
    age(engines / key, days=5)
    with entered(device) as target:
        assert not device_engine(target, subject.model).built
    assert (engines / key).stat().st_mtime > time.time() - 3600
    age(engines / key, days=9)
    with entered(device) as target:
        assert not list(engines.iterdir())
        assert device_engine(target, subject.model).built


def age(path: Path, *, days: float) -> None:
    then = time.time() - days * 86400
    os.utime(path, (then, then))


@pytest.mark.parametrize("version", ["8200", "8400"])
def test_a_tensorrt_too_old_for_the_artifact_s_graphs_is_refused(
    device: Device, subject: Subject, tmp_path: Path, version: str
) -> None:
    install(tmp_path, version)
    with entered(device) as target, pytest.raises(DeviceError, match=r"too old for model\.onnx") as caught:
        device_engine(target, subject.model)
    assert caught.value.exit_code == 4
    assert not (tmp_path / "builds").exists()


def test_failures_of_the_device_are_said(device: Device, subject: Subject, tmp_path: Path) -> None:
    with entered(device) as target:
        with pytest.raises(DeviceError, match="has no trtexec"):
            device_engine(target, subject.model)
        install(tmp_path, "100300", fails=True)
        with pytest.raises(DeviceError, match="the network does not build"):
            device_engine(target, subject.model)
        assert not list((tmp_path / "board/cache/compressor/engines").rglob("model.engine"))
        with pytest.raises(ArtifactError, match=r"build\.json"):
            device_engine(target, tmp_path / "board/bin")


def test_prepare_locks_the_clocks_and_puts_them_back_even_on_failure(device: Device, tmp_path: Path) -> None:
    with entered(device) as target:
        with pytest.raises(RuntimeError), prepared(target) as changed:
            assert changed == ("jetson_clocks",)
            assert (tmp_path / "board/cache/compressor/restore.sh").exists()
            raise RuntimeError
        said = [line.split()[:1] for line in (tmp_path / "clocks").read_text(encoding="utf-8").splitlines()]
        assert said == [["--store"], [], ["--restore"]]
        assert not (tmp_path / "board/cache/compressor/restore.sh").exists()


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_what_a_dead_process_left_changed_is_put_back_by_the_next(device: Device, tmp_path: Path) -> None:
    with entered(device) as target:
        left = prepared(target)
        left.__enter__()  # and the process dies here
    del left
    gc.collect()
    (tmp_path / "clocks").write_text("", encoding="utf-8")
    with entered(device) as target, prepared(target):
        pass
    said = [line.split()[:1] for line in (tmp_path / "clocks").read_text(encoding="utf-8").splitlines()]
    assert said == [["--restore"], ["--store"], [], ["--restore"]]
    assert (tmp_path / "succeeded").read_text(encoding="utf-8").split().count("--restore") == 2
    assert device.leftovers == []


def test_what_cannot_be_put_back_is_an_error_and_is_remembered(device: Device, tmp_path: Path) -> None:
    with entered(device) as target:
        left = prepared(target)
        left.__enter__()
    del left
    gc.collect()
    sudo = (tmp_path / "board/bin/sudo").read_text(encoding="utf-8")
    program(tmp_path / "board/bin", "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    with entered(device) as target:
        with pytest.raises(DeviceError, match="changed could not be put back: sudo: a password") as caught:
            prepared(target).__enter__()
        script = tmp_path / "board/cache/compressor/restore.sh"
        assert str(script) in str(caught.value.remedy)
    (tmp_path / "board/bin/sudo").write_text(sudo, encoding="utf-8")
    with entered(device) as target:
        assert restore(target)
        assert not restore(target)
    assert device.leftovers == []


def test_nothing_is_changed_that_could_not_be_remembered(device: Device, tmp_path: Path) -> None:
    (tmp_path / "board/cache/compressor/restore.sh/folder").mkdir(parents=True)
    with entered(device) as target, pytest.raises(DeviceError, match="could not be written down"), prepared(target):
        pytest.fail("it measured")
    assert not (tmp_path / "clocks").exists()


def test_a_change_that_is_not_allowed_is_an_error_and_leaves_nothing(device: Device, tmp_path: Path) -> None:
    program(tmp_path / "board/bin", "sudo", "echo 'sudo: a password is required' >&2; exit 1")
    with entered(device) as target, pytest.raises(DeviceError, match="a password is required"), prepared(target):
        pass
    assert not (tmp_path / "board/cache/compressor/restore.sh").exists()
