"""TensorRT on a device of its own: engines built there and kept, and single times from its ``trtexec``.

An engine fits one TensorRT version and one GPU, and was tuned in one power mode, so it is built on the device from the
exported folder, with the folder's own script, and kept under a key of all four. Another version or mode is another key:
an engine is never loaded where it was not built.
"""

from __future__ import annotations

import array
import logging
import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compressor.core.errors import ArtifactError, DeviceError
from compressor.core.hashing import combine, sha256_folder
from devices.runners import python_runner
from devices.targets.remote import RemoteTarget
from devices.targets.target import Target
from devices.tools import trtexec
from devices.tools.result import ToolResult

if TYPE_CHECKING:
    from devices.runner import Job

_LOG = logging.getLogger(__name__)
BUILD_LIMIT_S = 3600.0
WARM_UP_MS = 500
_FIND = "command -v trtexec || { [ -x /usr/src/tensorrt/bin/trtexec ] && echo /usr/src/tensorrt/bin/trtexec; }"
_CODES = {"int32": "i", "int64": "q"}


@dataclass(frozen=True)
class Engine:
    """An engine on a device."""

    path: str
    tensorrt: str
    trtexec: str
    built: bool
    """True where it was built just now; False where the cache had it."""
    key: str


def device_engine(target: RemoteTarget, folder: Path) -> Engine:
    """Returns the engine of a TensorRT-ready folder on a device, built there if the cache has none.

    Args:
        target: entered.
        folder: the artifact: ONNX file, ``build.json`` and its build scripts.

    Raises:
        ArtifactError: a folder without build scripts.
        DeviceError: no trtexec, or a failed build (a TensorRT too old for the artifact's graphs among others).
    """
    if not (folder / "build.json").is_file():
        raise ArtifactError(f"{folder} has no build.json; expected a TensorRT artifact", remedy="convert --to tensorrt")
    program, version = _trtexec(target)
    state = target.conditions()
    parts = {
        "model": sha256_folder(folder),
        "tensorrt": _dotted(version),
        "device": "; ".join(f"{name}={text}" for name, text in sorted(target.fingerprint().items())),
        "power_mode": state.power_mode or "",
    }
    key = combine(parts)[:32]
    place = target.kept(f"engines/{key}")
    engine = f"{place}/model.engine"
    # The folder's time says when the engine was used: what a week has not used is removed (devices/targets/remote.py).
    if target.ask(f"[ -f {shlex.quote(engine)} ] && touch {shlex.quote(place)}").returncode == 0:
        return Engine(engine, parts["tensorrt"], program, built=False, key=key)
    _LOG.info("building the engine of %s on %s with TensorRT %s", folder.name, target.address.name, parts["tensorrt"])
    _build(target, folder, place, program)
    return Engine(engine, parts["tensorrt"], program, built=True, key=key)


def run_engine(target: Target, job: Job, *, time_limit_s: float) -> dict[str, Any]:
    """Times a job's sentences with trtexec; returns the runner's answer as plain values.

    trtexec repeats one input, so there is one process for each length that occurs, fed with a real sentence of that
    length, and as many runs as the order has sentences of it. A GPU's time depends on the length, not on the words.

    Raises:
        DeviceError: no engine, or trtexec failed.
    """
    if not isinstance(target, RemoteTarget):
        raise DeviceError(
            f"{target.address.name}: an engine is built and timed on a device over ssh",
            remedy="name the device, e.g. jetson-orin-nano@ssh:me@10.0.0.5",
        )
    engine = device_engine(target, Path(job.model))
    help_text = _text(target, [engine.trtexec, "--help"])
    plain = job.model_dump(mode="json")
    encodings = python_runner.untimed_encodings(plain)
    lengths = {index: python_runner.length_of(len(item.ids), plain) for index, item in encodings.items()}
    order = [lengths[index] for index in job.order]
    times: dict[int, list[float]] = {}
    cold: ToolResult | None = None
    for length in sorted(set(order)):
        index = next(index for index, found in lengths.items() if found == length)
        inputs = _inputs(target, plain, encodings[index], length)
        ask = _Timing(engine, help_text, inputs, length, time_limit_s)
        if cold is None:
            cold = ask.run(target, runs=1, warm_up_ms=0)
        times[length] = list(ask.run(target, runs=order.count(length), warm_up_ms=WARM_UP_MS).runs_ms)
        if len(times[length]) < order.count(length):
            raise DeviceError(
                f"trtexec made {len(times[length])} runs at {length} tokens; {order.count(length)} were asked for",
                remedy="measure again",
            )
    assert cold is not None  # an order is never empty
    return {
        "schema_version": 1,
        "runtime": f"tensorrt {engine.tensorrt} (trtexec)",
        "python": "none (trtexec)",
        "threads": job.threads,
        "load_ms": cold.load_ms or 0.0,
        "cold_ms": cold.runs_ms[0],
        "warmup_runs": 0,
        "peak_memory_mb": None,
        "truncated_sentences": [index for index, item in encodings.items() if item.overflowing],
        "runs": {
            "sentence": list(job.order),
            "tokens": [len(encodings[index].ids) for index in job.order],
            "length": order,
            "tokenize_ms": None,
            "inference_ms": [times[length].pop(0) for length in order],
        },
    }


@dataclass(frozen=True)
class _Timing:
    engine: Engine
    help_text: str
    inputs: Mapping[str, str]
    length: int
    time_limit_s: float

    def run(self, target: RemoteTarget, *, runs: int, warm_up_ms: int) -> ToolResult:
        remote = target.path("times.json")
        done = target.run(
            trtexec.measure_command(
                self.engine.trtexec, self.engine.path, help_text=self.help_text, times=remote, runs=runs,
                warm_up_ms=warm_up_ms, inputs=self.inputs, shapes=dict.fromkeys(self.inputs, (1, self.length)),
            ),
            time_limit_s=self.time_limit_s,
        )  # fmt: skip
        log = done.stdout + done.stderr
        if done.returncode != 0:
            trtexec.parse(f"{log}\n&&&& FAILED")
        with tempfile.TemporaryDirectory() as folder:
            local = Path(folder) / "times.json"
            target.pull(remote, local)
            return trtexec.parse(log, local.read_text(encoding="utf-8"), warm_up_ms=warm_up_ms)


def _trtexec(target: RemoteTarget) -> tuple[str, tuple[int, ...]]:
    program = target.ask(_FIND).stdout.strip()
    if not program:
        raise DeviceError(
            f"{target.address.name} has no trtexec; it comes with JetPack's TensorRT", remedy="apt install tensorrt"
        )
    version = trtexec.version_of(_text(target, [program, "--help"]))
    if version is None:
        raise DeviceError(f"{program} does not tell its version", remedy="run it by hand and look")
    return program, version


def _build(target: RemoteTarget, folder: Path, place: str, program: str) -> None:
    there = target.push(folder)
    target.ask(f"mkdir -p {shlex.quote(place)}")
    if target.has_modules(("tensorrt",)):
        command = [target.python, f"{there}/build_engine.py", "--folder", there, "--output", place]
    else:
        command = ["bash", f"{there}/build_engine.sh"]
    done = target.run(command, time_limit_s=BUILD_LIMIT_S, environment={"OUTPUT": place, "TRTEXEC": program})
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if re.search(r"error|\[E\]", line)]
        raise DeviceError(
            f"{target.address.name} built no engine: {lines[-1][:300] if lines else 'no message'}",
            remedy=f"run {Path(command[-1]).name if len(command) == 2 else 'build_engine.py'} there by hand",
        )


def _inputs(target: RemoteTarget, job: dict[str, Any], encoding: Any, length: int) -> dict[str, str]:
    """Writes a sentence's inputs as raw values to the device; returns {input name: path there}."""
    entry = python_runner.entry_of(job["signatures"], length)
    tokens = len(encoding.ids)
    values: dict[str, Sequence[int]] = {
        "input_ids": [*encoding.ids, *([job["pad_id"]] * (length - tokens))],
        "attention_mask": [1] * tokens + [0] * (length - tokens),
        "token_type_ids": [*encoding.type_ids, *([0] * (length - tokens))],
    }
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for role, feed in entry["inputs"].items():
            file = Path(folder) / f"{role}.bin"
            file.write_bytes(array.array(_CODES[feed["dtype"]], values[role]).tobytes())
            found[feed["name"]] = target.push(file)
    return found


def _text(target: RemoteTarget, command: Sequence[str]) -> str:
    done = target.run(command, time_limit_s=60)
    return done.stdout + done.stderr


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
