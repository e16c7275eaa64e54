"""A phone for tests: the device's side of the adb protocol over TCP, serving a folder.

    python -m tests.devices.adbd --root FOLDER --port PORT

``FOLDER/data/local/tmp`` is the phone's TMPDIR, ``FOLDER/bin`` comes first on its PATH
(getprop, dumpsys and the like are scripts there), and ``/sys/devices`` in a script means ``FOLDER/sys/devices``.
SIGUSR1 drops every connection, as a pulled cable does; SIGKILL is the phone going away.

Protocol: AOSP packages/modules/adb, docs/dev/{protocol,sync}.md and shell_protocol.h.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import queue
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

MAX_DATA = 256 * 1024
FEATURES = "shell_v2,cmd,stat_v2,ls_v2"
STDIN, STDOUT, STDERR, EXIT, CLOSE_STDIN = range(5)


class Stream:
    """One service on a connection; a write waits for the other side to have taken the one before."""

    def __init__(self, wire: Wire, number: int, peer: int) -> None:
        self.wire, self.number, self.peer = wire, number, peer
        self.inbox: queue.Queue[bytes | None] = queue.Queue()
        self.ready = threading.Semaphore(0)
        self.open = True
        self.rest = b""
        self.lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self.lock:
            for start in range(0, len(data), self.wire.max_data):
                if not self.open:
                    raise ConnectionError
                self.wire.send(b"WRTE", self.number, self.peer, data[start : start + self.wire.max_data])
                self.ready.acquire()
            if not self.open:
                raise ConnectionError

    def read(self, size: int) -> bytes:
        while len(self.rest) < size:
            chunk = self.inbox.get()
            if chunk is None:
                raise EOFError
            self.wire.send(b"OKAY", self.number, self.peer)
            self.rest += chunk
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def end(self) -> None:
        self.open = False
        self.inbox.put(None)
        self.ready.release()


class Wire(threading.Thread):
    """One connection from an adb server."""

    def __init__(self, connection: socket.socket, root: Path) -> None:
        super().__init__(daemon=True)
        self.connection, self.root = connection, root
        self.max_data = 4096
        self.streams: dict[int, Stream] = {}
        self.lock = threading.Lock()

    def send(self, command: bytes, first: int, second: int, data: bytes = b"") -> None:
        word = int.from_bytes(command, "little")
        head = struct.pack("<6I", word, first, second, len(data), sum(data) & 0xFFFFFFFF, word ^ 0xFFFFFFFF)
        with self.lock:
            self.connection.sendall(head + data)

    def run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                word, first, second, size, _, _ = struct.unpack("<6I", self._take(24))
                self._handle(word.to_bytes(4, "little"), first, second, self._take(size))
        for stream in list(self.streams.values()):
            stream.end()
        self.connection.close()

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.connection.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _handle(self, command: bytes, first: int, second: int, data: bytes) -> None:
        if command == b"CNXN":
            self.max_data = min(second, MAX_DATA)
            banner = f"device::ro.product.name=stand_in;ro.product.model=Stand_in;features={FEATURES}"
            self.send(b"CNXN", 0x01000001, MAX_DATA, banner.encode())
        elif command == b"OPEN":
            self._open(first, data.rstrip(b"\0").decode())
        elif stream := self.streams.get(second):
            if command == b"WRTE":
                stream.inbox.put(data)
            elif command == b"OKAY":
                stream.ready.release()
            elif command == b"CLSE":
                self.streams.pop(second).end()

    def _open(self, peer: int, service: str) -> None:
        name, _, argument = service.partition(":")
        if name.partition(",")[0] not in ("shell", "sync"):
            self.send(b"CLSE", 0, peer)
            return
        number = max(self.streams, default=0) + 1
        stream = self.streams[number] = Stream(self, number, peer)
        self.send(b"OKAY", number, peer)
        threading.Thread(target=self._serve, args=(stream, name, argument), daemon=True).start()

    def _serve(self, stream: Stream, name: str, argument: str) -> None:
        with contextlib.suppress(OSError, EOFError):
            if name.startswith("shell"):
                shell(stream, argument, self.root)
            else:
                sync(stream)
        with contextlib.suppress(OSError):
            if stream.open:
                self.send(b"CLSE", stream.number, stream.peer)
        stream.end()


def shell(stream: Stream, command: str, root: Path) -> None:
    """Runs a command; packets of one kind byte, a length and data carry the three streams and the exit code."""
    environment = {
        **os.environ,
        "PATH": f"{root}/bin:{os.environ['PATH']}",
        "TMPDIR": f"{root}/data/local/tmp",
        "HOME": "/",
    }
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=root, env=environment, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip

    def pump(pipe, kind: int) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(pipe.fileno(), 32768):
                stream.write(struct.pack("<BI", kind, len(chunk)) + chunk)

    def feed() -> None:
        with contextlib.suppress(OSError, EOFError, ValueError):
            while True:
                kind, size = struct.unpack("<BI", stream.read(5))
                data = stream.read(size).replace(b"/sys/devices", f"{root}/sys/devices".encode())
                if kind == STDIN:
                    os.write(process.stdin.fileno(), data)
                elif kind == CLOSE_STDIN:
                    break
        with contextlib.suppress(OSError, ValueError):
            process.stdin.close()
        if not stream.open:  # as adbd hangs up what a client that went away has started
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGHUP)

    pumps = [
        threading.Thread(target=pump, args=(pipe, kind), daemon=True)
        for pipe, kind in ((process.stdout, STDOUT), (process.stderr, STDERR))
    ]
    threading.Thread(target=feed, daemon=True).start()
    for thread in pumps:
        thread.start()
    for thread in pumps:
        thread.join()
    code = process.wait()
    stream.write(struct.pack("<BIB", EXIT, 1, code if code >= 0 else 128 - code))


def sync(stream: Stream) -> None:
    """Serves file requests of four letters, a length and a path."""
    while True:
        request, size = struct.unpack("<4sI", stream.read(8))
        if request == b"QUIT":
            return
        path = stream.read(size).decode()
        if request in (b"STAT", b"STA2", b"LST2"):
            stream.write(_stat(request, path))
        elif request == b"RECV":
            _send_file(stream, path)
        elif request == b"SEND":
            _take_file(stream, path)
        else:
            return


def _stat(request: bytes, path: str) -> bytes:
    try:
        found = Path(path).stat() if request == b"STA2" else Path(path).lstat()
    except OSError as error:
        empty = struct.pack("<3I", 0, 0, 0) if request == b"STAT" else struct.pack("<I", error.errno) + bytes(64)
        return request + empty
    if request == b"STAT":
        return request + struct.pack("<3I", found.st_mode, found.st_size & 0xFFFFFFFF, int(found.st_mtime))
    times = int(found.st_atime), int(found.st_mtime), int(found.st_ctime)
    owner = found.st_mode, found.st_nlink, found.st_uid, found.st_gid
    return request + struct.pack("<I2Q4IQ3q", 0, found.st_dev, found.st_ino, *owner, found.st_size, *times)


def _fail(stream: Stream, said: str) -> None:
    stream.write(b"FAIL" + struct.pack("<I", len(said)) + said.encode())


def _send_file(stream: Stream, path: str) -> None:
    try:
        with Path(path).open("rb") as source:
            while chunk := source.read(65536):
                stream.write(b"DATA" + struct.pack("<I", len(chunk)) + chunk)
    except OSError as error:
        _fail(stream, f"open failed: {error.strerror}")
        return
    stream.write(b"DONE" + bytes(4))


def _take_file(stream: Stream, target: str) -> None:
    path, _, mode = target.rpartition(",")
    failure = None
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("wb", buffering=0))
        except OSError as error:
            failure = error
        while True:
            kind, size = struct.unpack("<4sI", stream.read(8))
            if kind == b"DONE":
                break
            data = stream.read(size)
            try:
                if failure is None:
                    file.write(data)
            except OSError as error:
                failure = error
    if failure is not None:
        _fail(stream, f"couldn't write: {failure.strerror}")
        return
    Path(path).chmod(int(mode) & 0o777)
    stream.write(b"OKAY" + bytes(4))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    root = options.root.resolve()
    (root / "data/local/tmp").mkdir(parents=True, exist_ok=True)
    wires: list[Wire] = []
    signal.signal(signal.SIGUSR1, lambda *_: [wire.drop() for wire in wires])
    with socket.create_server(("127.0.0.1", options.port)) as server:
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            wires.append(Wire(connection, root))
            wires[-1].start()


if __name__ == "__main__":
    main()
