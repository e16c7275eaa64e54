"""Both ways to a remote device, with the real clients: adb against a stand-in phone, ssh against a real sshd."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import psutil
import pytest

from compressor.core.errors import DeviceError, UsageError
from devices.profiles import parse_device
from devices.targets import target_for
from devices.targets.adb import AdbLink
from devices.targets.remote import RemoteTarget
from devices.targets.ssh import SshLink
from devices.targets.target import ConnectionLostError
from tests.devices.phones import Device, adb_server, board, needs_adb, needs_sshd, phone, program

WAYS = [pytest.param("adb", marks=needs_adb), pytest.param("ssh", marks=needs_sshd)]
HOSTILE = [
    "a b", "q'\"", "semi;colon", "$(touch pwned)", "`touch pwned`", "new\nline", "ünï 漢字 🙂", "-n", "--", "*", "~",
    "back\\slash", "tab\there", "%s%n", "&& touch pwned", "| touch pwned", "> pwned", "$HOME", "${IFS}", "#", "!", "",
]  # fmt: skip


PIECES = ["a", " ", "'", '"', ";", "$(touch pwned)", "`touch pwned`", "\n", "\\", "&", "|", "ü", "漢", "-", "*", "%n"]
MANY = [f"{first}{second}x{number}" for number, (first, second) in enumerate(product(PIECES, PIECES))][:250:2]
"""More than a hundred names of every pair of pieces."""


@pytest.fixture(params=WAYS, scope="module")
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as monkeypatch, ExitStack() as stack:
        if request.param == "adb":
            stack.enter_context(adb_server(monkeypatch, folder))
            yield stack.enter_context(phone(folder / "phone"))
        else:
            yield stack.enter_context(board(folder / "board", monkeypatch))


@pytest.fixture(scope="module")
def target(device: Device) -> Iterator[RemoteTarget]:
    with target_for(device.address) as target:
        assert isinstance(target, RemoteTarget)
        yield target


def processes_with(text: str) -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if text in " ".join(process.info["cmdline"] or ()) and process.status() != psutil.STATUS_ZOMBIE
    ]


def wait_until(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def test_arguments_environment_streams_and_exit_codes_arrive_as_they_are(target: RemoteTarget) -> None:
    show = 'for word in "$@"; do printf "<%s>" "$word"; done; printf %s "$SETTING" >&2; exit 7'
    done = target.run(["sh", "-c", show, "sh", *HOSTILE], time_limit_s=20, environment={"SETTING": "a 'b' $c\n;"})
    assert done.returncode == 7
    assert done.stdout == "".join(f"<{word}>" for word in HOSTILE)
    assert done.stderr == "a 'b' $c\n;"
    assert target.ask("ls").stdout == ""


@pytest.mark.parametrize("code", [0, 1, 3, 124, 200, 255])
def test_exit_codes_are_the_command_s_own(target: RemoteTarget, code: int) -> None:
    assert target.run(["sh", "-c", f"exit {code}"], time_limit_s=20).returncode == code


def test_a_signal_is_a_negative_code_and_a_missing_program_a_device_error(target: RemoteTarget) -> None:
    assert target.run(["sh", "-c", "kill -9 $$"], time_limit_s=20).returncode == -9
    with pytest.raises(DeviceError, match="does not start"):
        target.run(["/no/such program"], time_limit_s=20)


def test_files_travel_once_and_come_back(target: RemoteTarget, device: Device, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    content = os.urandom(3_000_000)
    file.write_bytes(content)
    remote = target.push(file)
    stored = Path(remote)
    assert stored.suffix == ".onnx"
    assert stored.read_bytes() == content
    changed = stored.stat().st_ctime_ns
    copy = tmp_path / "the same under another name.onnx"
    copy.write_bytes(content)
    assert target.push(copy) == remote
    with target_for(device.address) as again:
        assert again.push(file) == remote
    assert stored.stat().st_ino == Path(remote).stat().st_ino
    assert stored.stat().st_ctime_ns >= changed
    target.pull(remote, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    with pytest.raises(DeviceError, match="no such file"):
        target.pull(target.path("nothing"), tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_an_interrupted_copy_never_takes_the_file_s_place(target: RemoteTarget, device: Device, tmp_path: Path) -> None:
    file = tmp_path / "model.tflite"
    file.write_bytes(b"good" * 1000)
    send = target._link.send
    target._link.send = lambda local, remote, **limits: send(_cut(local, tmp_path), remote, **limits)
    with pytest.raises(DeviceError, match="arrived damaged"):
        target.push(file)
    target._link.send = send
    assert Path(target.push(file)).read_bytes() == b"good" * 1000
    assert not list(device.root.rglob("*.part"))


def _cut(local: Path, folder: Path) -> Path:
    cut = folder / "cut"
    cut.write_bytes(local.read_bytes()[:100])
    return cut


def test_folders_keep_their_names_and_the_working_folder_goes(device: Device, tmp_path: Path) -> None:
    folder = tmp_path / "artifact $(touch pwned)"
    names = ["model.onnx", 'sub folder/it\'s ; "here"', "new\nline", "ünï/漢字 🙂", "-rf"]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"content of {name}", encoding="utf-8")
    with target_for(device.address) as target:
        remote = Path(target.push(folder))
        found = {path.relative_to(remote).as_posix(): path.read_text() for path in remote.rglob("*") if path.is_file()}
        assert found == {name: f"content of {name}" for name in names}
        assert target.push(folder) == str(remote)
        mine = Path(target.path("x")).parent
        assert mine.name in device.leftovers
    assert mine.name not in device.leftovers


def test_a_home_with_spaces_is_one_path_and_nothing_beside_it_is_touched(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way in (AdbLink, SshLink):
        monkeypatch.setattr(way, "base", f'"{tmp_path}/my disk  2/compressor"')
    precious = tmp_path / "my" / "precious"
    precious.parent.mkdir()
    precious.write_text("x", encoding="utf-8")
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "model.onnx").write_text("content", encoding="utf-8")
    with target_for(device.address) as target:
        assert (Path(target.push(folder)) / "model.onnx").read_text(encoding="utf-8") == "content"
    assert precious.exists()
    with target_for(device.address) as target:
        monkeypatch.setattr(target._link, "send", None)
        assert (Path(target.push(folder)) / "model.onnx").read_text(encoding="utf-8") == "content"


def test_a_hundred_hostile_names_are_files_and_arguments_and_nothing_else(
    target: RemoteTarget, device: Device, tmp_path: Path
) -> None:
    assert len(MANY) > 100
    done = target.run(["sh", "-c", 'printf "%s\\0" "$@"', "sh", *MANY], time_limit_s=60)
    assert done.stdout.split("\0")[:-1] == MANY
    folder = tmp_path / "many"
    folder.mkdir()
    for name in MANY:
        (folder / name).write_text("same", encoding="utf-8")
    remote = Path(target.push(folder))
    assert sorted(path.name for path in remote.iterdir()) == sorted(MANY)
    for name in MANY[:3]:
        target.pull(f"{remote}/{name}", tmp_path / "back")
        assert (tmp_path / "back").read_text(encoding="utf-8") == "same"
    assert not list(device.root.rglob("pwned"))
    assert not Path("pwned").exists()


def test_the_time_limit_ends_the_remote_process_and_its_children(target: RemoteTarget) -> None:
    mark = f"31{os.getpid() % 9973:04d}"
    started = time.monotonic()
    with pytest.raises(DeviceError, match="did not end within 1 s") as caught:
        target.run(["sh", "-c", f"trap '' TERM; sleep {mark} & sleep {mark}; sleep {mark}"], time_limit_s=1)
    assert caught.value.exit_code == 4
    assert not isinstance(caught.value, ConnectionLostError)
    assert time.monotonic() - started < 15
    wait_until(lambda: not processes_with(f"sleep {mark}"))


def test_a_dropped_connection_is_its_own_error_ends_the_process_and_heals(target: RemoteTarget, device: Device) -> None:
    mark = f"32{os.getpid() % 9973:04d}"
    threading.Thread(
        target=lambda: (wait_until(lambda: processes_with(f"sleep {mark}")), device.drop()), daemon=True
    ).start()
    with pytest.raises(ConnectionLostError, match="broke while") as caught:
        target.run(["sleep", mark], time_limit_s=600)
    assert caught.value.exit_code == 4
    wait_until(lambda: not processes_with(f"sleep {mark}"))
    assert target.ask("echo back").stdout == "back\n"


def test_a_device_that_goes_away_for_good_is_an_error_within_its_limit(device: Device) -> None:
    mark = f"33{os.getpid() % 9973:04d}"
    try:
        with pytest.raises(DeviceError), target_for(device.address) as target:
            threading.Thread(
                target=lambda: (wait_until(lambda: processes_with(f"sleep {mark}")), device.kill()), daemon=True
            ).start()
            target.run(["sleep", mark], time_limit_s=600)
        wait_until(lambda: not processes_with(f"sleep {mark}"))
    finally:
        device.start()


def test_a_full_disk_is_said_and_leaves_no_part_behind(device: Device, tmp_path: Path) -> None:
    base = device.root / ("data/local/tmp" if device.address.transport == "adb" else "cache")
    base.mkdir(parents=True, exist_ok=True)
    if os.getuid() != 0 or os.system(f"mount -t tmpfs -o size=1m tmpfs '{base}' 2>/dev/null") != 0:
        pytest.skip("a small file system can be mounted by root only")
    try:
        big = tmp_path / "big.onnx"
        big.write_bytes(os.urandom(3_000_000))
        with target_for(device.address) as target, pytest.raises(DeviceError, match="storage is full") as caught:
            target.push(big)
        assert not isinstance(caught.value, ConnectionLostError)
        assert not list(base.rglob("*.part"))
    finally:
        os.system(f"umount -l '{base}'")


def test_nul_and_names_that_are_no_variables_are_wrong_use(target: RemoteTarget) -> None:
    with pytest.raises(UsageError):
        target.run(["echo", "a\0b"], time_limit_s=5)
    with pytest.raises(UsageError):
        target.run(["echo"], time_limit_s=5, environment={"A;touch pwned": "x"})


@needs_adb
@pytest.mark.parametrize("name", HOSTILE[:-1])
def test_hostile_serials_are_not_found_and_not_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        adb_server(monkeypatch, tmp_path),
        pytest.raises(DeviceError, match="is not there") as caught,
        target_for(parse_device(f"mobile-cpu@adb:{name}")),
    ):
        pass
    assert caught.value.exit_code == 4
    assert not (tmp_path / "pwned").exists()


@needs_sshd
@pytest.mark.parametrize("name", [*HOSTILE[:-1], "-oProxyCommand=touch pwned", "$(touch pwned)@127.0.0.1"])
def test_hostile_hosts_are_not_reached_and_not_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COMPRESSOR_SSH", "ssh -F /dev/null -o ProxyCommand=false")
    with pytest.raises(DeviceError, match="is not reached"), target_for(parse_device(f"mobile-cpu@ssh:{name}")):
        pass
    assert not (tmp_path / "pwned").exists()


@needs_sshd
def test_what_a_login_shell_prints_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with board(tmp_path / "board", monkeypatch) as device:
        program(tmp_path / "board/bin", "python3", "exit 1")
        precious = tmp_path / "precious"
        precious.mkdir()
        greeting = f"Welcome\n{precious}\naarch64\n"
        (tmp_path / "board/greeting").write_text(greeting, encoding="utf-8")
        # As bash does of ~/.bashrc, whatever shell the account that runs the tests has.
        shell = program(tmp_path, "shell", f'cat {tmp_path}/board/greeting; exec sh "$@"')
        key = (tmp_path / "board/user.pub").read_text(encoding="utf-8")
        (tmp_path / "board/authorized_keys").write_text(
            f'command="{shell} -c \\"$SSH_ORIGINAL_COMMAND\\"" {key}', encoding="utf-8"
        )
        file = tmp_path / "model.onnx"
        file.write_bytes(b"content")
        with target_for(device.address) as target:
            assert target.machine == os.uname().machine
            assert target.ask("echo one; echo two").stdout == "one\ntwo\n"
            target.pull(target.push(file), tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == b"content"
        assert precious.is_dir()
        assert device.leftovers == []
        assert (device.root / "cache/compressor/store").is_dir()


@pytest.mark.parametrize(
    ("where", "remedy"), [("me@box:2222", "ssh-copy-id -p 2222 me@box"), ("me@box", "ssh-copy-id me@box")]
)
def test_a_refused_login_leaves_nothing_and_says_what_to_type(
    where: str, remedy: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusing = program(tmp_path, "ssh", "echo 'me@box: Permission denied (publickey).' >&2; exit 255")
    monkeypatch.setenv("COMPRESSOR_SSH", str(refusing))
    made: list[str] = []
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: made.append(f"{tmp_path}/sockets") or made[-1])
    (tmp_path / "sockets").mkdir()
    with pytest.raises(DeviceError, match="Permission denied") as caught, target_for(parse_device(f"host@ssh:{where}")):
        pass
    assert made
    assert not (tmp_path / "sockets").exists()
    assert str(caught.value.remedy).endswith(remedy)


@pytest.mark.parametrize("program", ["adb", "ssh"])
def test_a_missing_client_says_what_to_install(program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    where = "adb:R5CT1234" if program == "adb" else "ssh:me@box"
    with (
        pytest.raises(DeviceError, match=f"'{program}' is not installed"),
        target_for(parse_device(f"mobile-cpu@{where}")),
    ):
        pass


@needs_adb
def test_several_devices_work_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers: dict[int, str] = {}
    with adb_server(monkeypatch, tmp_path), ExitStack() as stack:
        phones = [stack.enter_context(phone(tmp_path / f"phone{number}")) for number in range(3)]

        def ask(number: int) -> None:
            with target_for(phones[number].address) as target:
                answers[number] = target.run(["sh", "-c", f"sleep 1; echo {number}; pwd"], time_limit_s=30).stdout

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [answers[number].splitlines()[0] for number in range(3)] == ["0", "1", "2"]
    assert all(str(tmp_path / f"phone{number}") in answers[number] for number in range(3))
