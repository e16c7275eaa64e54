from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from compressor.core.errors import DeviceError
from devices.profiles import parse_device
from devices.targets import target_for

HOSTILE = ["a b", "quote'\"", "semi;colon", "$(touch x)", "new\nline", "ünï", "-n"]


def test_arguments_arrive_as_they_are_and_the_folder_is_removed() -> None:
    with target_for(parse_device("host")) as target:
        folder = Path(target.path("x")).parent
        echo = "import sys, json; print(json.dumps(sys.argv[1:]))"
        done = target.run([target.python, "-c", echo, *HOSTILE], time_limit_s=30)
        assert done.returncode == 0
        assert done.stdout.strip() == __import__("json").dumps(HOSTILE)
        assert folder.is_dir()
    assert not folder.exists()


def test_exit_code_environment_and_error_text_come_back() -> None:
    code = "import os, sys; sys.stderr.write(os.environ['A_SETTING']); sys.exit(7)"
    with target_for(parse_device("host")) as target:
        done = target.run([sys.executable, "-c", code], time_limit_s=30, environment={"A_SETTING": "on"})
    assert (done.returncode, done.stderr) == (7, "on")


def test_the_time_limit_ends_the_process_and_its_children(tmp_path: Path) -> None:
    note = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(90)'])\n"
        f"open({str(note) + '.new'!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(note) + '.new'!r}, {str(note)!r})\n"
        "time.sleep(90)\n"
    )
    pids: list[int] = []
    with target_for(parse_device("host")) as target:
        for limit in (1.5, 10.0, 50.0):  # a busy machine may take long to start two interpreters
            with pytest.raises(DeviceError, match="did not end within"):
                target.run([sys.executable, "-c", code], time_limit_s=limit)
            pids = [int(word) for word in note.read_text().split()] if note.exists() else []
            if len(pids) == 2:
                break
    assert len(pids) == 2
    deadline = time.monotonic() + 60
    while any(_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_alive(pid) for pid in pids)


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_command_that_is_not_there_is_a_device_error() -> None:
    with target_for(parse_device("host")) as target, pytest.raises(DeviceError, match="does not start"):
        target.run(["/no/such/program"], time_limit_s=5)


def test_pulling_what_is_not_there_is_a_device_error(tmp_path: Path) -> None:
    with target_for(parse_device("host")) as target, pytest.raises(DeviceError, match="is not on"):
        target.pull(target.path("nothing"), tmp_path / "nothing")


def test_a_target_that_was_not_entered_says_so() -> None:
    from devices.targets.local import LocalTarget

    with pytest.raises(DeviceError, match="not connected"):
        LocalTarget(parse_device("host")).path("x")


def test_the_fingerprint_names_the_machine() -> None:
    with target_for(parse_device("host")) as target:
        assert target.fingerprint()["architecture"] == os.uname().machine
