"""Devices for tests on this machine: phones behind the real adb client, boards behind a real sshd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from devices.profiles import DeviceAddress, parse_device
from devices.targets.ssh import COMMAND_VARIABLE

TREE = Path(__file__).parents[2]
needs_adb = pytest.mark.skipif(shutil.which("adb") is None, reason="adb is not installed (tests/system-packages.sh)")
SSHD = shutil.which("sshd") or ("/usr/sbin/sshd" if Path("/usr/sbin/sshd").exists() else None)
needs_sshd = pytest.mark.skipif(SSHD is None, reason="sshd is not installed (tests/system-packages.sh)")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def program(folder: Path, name: str, script: str) -> Path:
    """Writes an executable shell script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@dataclass
class Device:
    """A device process with its folder."""

    root: Path
    address: DeviceAddress
    command: list[str]
    port: int
    process: subprocess.Popen[str] | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, cwd=TREE, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(TREE), **self.environment}, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.02)
        raise RuntimeError(f"{self.command[0]} does not listen")

    def drop(self) -> None:
        """Cuts every connection; the device stays."""
        assert self.process is not None
        if self.address.transport == "adb":
            self.process.send_signal(signal.SIGUSR1)
            return
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
                for grandchild in child.children():
                    grandchild.kill()

    def kill(self) -> None:
        """The device goes away without a word."""
        if self.process is not None:
            self.drop()
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def leftovers(self) -> list[str]:
        """What is below the device's folders of ours, apart from the store."""
        base = self.root / ("data/local/tmp" if self.address.transport == "adb" else "cache") / "compressor"
        return sorted(path.name for path in base.iterdir() if path.name != "store") if base.exists() else []


@contextlib.contextmanager
def phone(root: Path, profile: str = "mobile-cpu") -> Iterator[Device]:
    """A stand-in phone that the real adb reaches over TCP."""
    port = free_port()
    command = [sys.executable, "-m", "tests.devices.adbd", "--root", str(root), "--port", str(port)]
    address = parse_device(f"{profile}@adb:127.0.0.1:{port}")
    program(root / "bin", "uname", '[ "$1" = -m ] && echo aarch64 || exec /bin/uname "$@"')
    device = Device(root, address, command, port)
    device.start()
    try:
        yield device
    finally:
        device.kill()


@contextlib.contextmanager
def adb_server(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[None]:
    """An adb server of the test's own, so that a developer's phones and server are left alone."""
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    monkeypatch.setenv("HOME", str(home))
    try:
        yield
    finally:
        subprocess.run(["adb", "kill-server"], check=False, capture_output=True)


@contextlib.contextmanager
def board(root: Path, monkeypatch: pytest.MonkeyPatch, profile: str = "host") -> Iterator[Device]:
    """A real sshd on loopback, reached with throw-away keys; ``root/bin`` comes first on its PATH."""
    root.mkdir(parents=True, exist_ok=True)
    port = free_port()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / name)], check=True)
    (root / "authorized_keys").write_bytes((root / "user.pub").read_bytes())
    path = f"{root}/bin:{os.environ['PATH']}"
    (root / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {root}/host\nAuthorizedKeysFile {root}/authorized_keys\n"
        f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n"
        f'SetEnv PATH="{path}" XDG_CACHE_HOME="{root}/cache" HOME="{root}"\n',
        encoding="utf-8",
    )
    (root / "known_hosts").write_text(
        f"[127.0.0.1]:{port} {(root / 'host.pub').read_text(encoding='utf-8')}", encoding="utf-8"
    )
    (root / "ssh_config").write_text(
        f"Host board\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {root}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {root}/known_hosts\n  StrictHostKeyChecking yes\n",
        encoding="utf-8",
    )
    monkeypatch.setenv(COMMAND_VARIABLE, f"ssh -F {root}/ssh_config")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    device = Device(
        root, parse_device(f"{profile}@ssh:board"), [str(SSHD), "-D", "-e", "-f", str(root / "sshd_config")], port
    )
    device.start()
    try:
        yield device
    finally:
        device.kill()
