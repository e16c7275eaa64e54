"""Hands a timing job to the runner on a device and checks what comes back."""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from compressor.core.artifact import IOSpec
from compressor.core.errors import ArtifactError, DeviceError, MissingExtraError
from compressor.core.folders import write_json
from compressor.core.schema import Record
from devices.runners.bundle import NativeRuntime, native_bundle
from devices.runners.native_request import request_text
from devices.targets.target import ConnectionLostError, Target

_LOG = logging.getLogger(__name__)
Runtime = Literal["onnxruntime", "litert", "torch", "tensorrt"]
RUNNER = Path(__file__).parent / "runners" / "python_runner.py"
MODULES: dict[Runtime, tuple[str, ...]] = {
    "onnxruntime": ("numpy", "tokenizers", "onnxruntime"),
    "litert": ("numpy", "tokenizers", "ai_edge_litert"),
    "torch": ("numpy", "tokenizers", "torch", "transformers"),
    "tensorrt": (),
}
"""What the Python runner imports, by runtime."""
NATIVE: dict[Runtime, NativeRuntime] = {"onnxruntime": "onnxruntime", "litert": "litert"}
_CANONICAL = frozenset({"input_ids", "attention_mask", "token_type_ids"})


class InputFeed(Record):
    """One input as the file has it."""

    name: str
    dtype: Literal["int32", "int64"]


class EntryPoint(Record):
    """One signature of the file, keyed by canonical input names."""

    key: str | None
    length: int | None
    inputs: dict[str, InputFeed]


class WarmUp(Record):
    """When a length counts as warm: two successive windows of ``min_runs`` runs with the same median, within bounds."""

    min_runs: int = Field(default=3, ge=1)
    max_runs: int = Field(default=50, ge=1)
    max_seconds: float = Field(default=1.5, gt=0)
    """For all lengths of one process together."""
    tolerance: float = Field(default=0.05, gt=0)
    """Largest relative difference of the two medians."""


class Job(Record):
    """What the runner is asked to do; paths are this machine's until it is sent to a device."""

    schema_version: Literal[1] = 1
    runtime: Runtime
    model: str
    tokenizer: str
    threads: int = Field(ge=1)
    max_tokens: int = Field(ge=1)
    lengths: tuple[int, ...] = ()
    pad_to: int | None = Field(default=None, ge=1)
    pad_id: int = Field(ge=0)
    signatures: tuple[EntryPoint, ...] = ()
    sentences: tuple[str | tuple[str, str], ...] = Field(min_length=1)
    order: tuple[int, ...] = Field(min_length=1)
    """Index of the sentence of every timed run."""
    warmup: WarmUp = WarmUp()
    cpus: tuple[int, ...] = ()
    """Cores the process may use; none named: where the system puts it."""

    @model_validator(mode="after")
    def _order_within_sentences(self) -> Job:
        if not all(0 <= index < len(self.sentences) for index in self.order):
            raise ValueError("order names a sentence that is not there")
        return self


class RunColumns(Record):
    """The timed runs, column by column, in the order they were made."""

    sentence: tuple[int, ...]
    tokens: tuple[int, ...]
    length: tuple[int, ...]
    tokenize_ms: tuple[float, ...] | None
    """None where the device has no tokenizer: sentences came tokenised."""
    inference_ms: tuple[float, ...]


class RunnerResult(Record):
    """What one process of the runner measured."""

    schema_version: Literal[1]
    runtime: str
    python: str
    threads: int
    load_ms: float = Field(ge=0)
    cold_ms: float = Field(ge=0)
    warmup_runs: int = Field(ge=0)
    peak_memory_mb: float | None
    truncated_sentences: tuple[int, ...]
    """Indices of the sentences of the order that were cut to the most tokens the model takes."""
    cores: tuple[int, ...] | None = None
    """Cores on which the timed inferences ended; None where the runner does not tell."""
    runs: RunColumns


def entry_points(io: IOSpec) -> tuple[EntryPoint, ...]:
    """Returns how to feed an artifact, input by input, from its ``io.json``.

    Raises:
        ArtifactError: an input that is no token input, or one that is not int32 or int64.
    """
    entries = []
    for signature in io.signatures:
        types = {tensor.name: tensor.dtype for tensor in signature.inputs}
        unknown = set(signature.roles) - _CANONICAL
        unfed = set(types) - set(signature.roles.values())
        if unknown or unfed:
            raise ArtifactError(
                f"entry point {signature.key or '(default)'} has inputs no sentence fills: {sorted(unknown | unfed)}",
                remedy="expected input_ids, attention_mask and token_type_ids only; convert the model again",
            )
        try:
            inputs = {
                role: InputFeed.model_validate({"name": name, "dtype": types[name]})
                for role, name in signature.roles.items()
            }
        except (KeyError, ValidationError) as error:
            raise ArtifactError(
                f"entry point {signature.key or '(default)'} lists no int32 or int64 tensor for each of its roles",
                remedy="convert the model again",
            ) from error
        entries.append(EntryPoint(key=signature.key, length=signature.length, inputs=inputs))
    return tuple(entries)


def run_job(target: Target, job: Job, *, time_limit_s: float) -> RunnerResult:
    """Runs one fresh process of a runner on an entered target: in the device's Python, else the native one.

    A process that is lost with its connection left no times, so it is started once more.

    Args:
        target: where to run; entered.
        job: what to time; paths are this machine's and are sent as needed.
        time_limit_s: after this many seconds the process and its children are ended.

    Raises:
        DeviceError: the runner did not start, did not end in time, failed, or its answer does not fit the job.
        MissingExtraError: the device's Python lacks the runtime.
    """
    if job.runtime == "tensorrt":
        from devices.jetson import run_engine

        return read_result(json.dumps(run_engine(target, job, time_limit_s=time_limit_s)), job)
    native = NATIVE.get(job.runtime) if not target.has_modules(MODULES[job.runtime]) else None
    if native is None and not target.python:
        raise DeviceError(
            f"{target.address.name} has no Python, and {job.runtime} runs in nothing else",
            remedy="measure an onnx or tflite artifact there, or install Python on the device",
        )
    run = _run_python if native is None else partial(_run_native, runtime=native)
    try:
        return run(target, job, time_limit_s=time_limit_s)
    except ConnectionLostError as error:
        _LOG.warning("%s; once more", error.message)
        target.reconnect()
        return run(target, job, time_limit_s=time_limit_s)


def _run_python(target: Target, job: Job, *, time_limit_s: float) -> RunnerResult:
    runner = target.push(RUNNER)
    there = job.model_copy(
        update={"model": target.push(Path(job.model)), "tokenizer": target.push(Path(job.tokenizer))}
    )
    with tempfile.TemporaryDirectory(prefix="compressor-job-") as folder:
        request, answer = Path(folder) / "job.json", Path(folder) / "result.json"
        write_json(request, there.model_dump(mode="json"))
        # A name of its own: a runner that ends without writing must not leave us an earlier job's answer.
        remote_answer = target.path(f"{Path(folder).name}.json")
        command = [target.python, runner, target.push(request), remote_answer]
        return read_result(_answer(target, command, remote_answer, answer, time_limit_s), job)


def _run_native(target: Target, job: Job, *, time_limit_s: float, runtime: NativeRuntime) -> RunnerResult:
    bundle = native_bundle(target.machine, runtime)
    text, cut = request_text(job, label=bundle.label)
    folder_there = target.push(bundle.path)
    with tempfile.TemporaryDirectory(prefix="compressor-job-") as folder:
        request, answer = Path(folder) / "request.txt", Path(folder) / "result.json"
        request.write_text(text, encoding="utf-8")
        remote_answer = target.path(f"{Path(folder).name}.json")
        model = target.push(Path(job.model))
        command = bundle.command(folder_there, runtime, model, target.push(request), remote_answer)
        said = _answer(target, command, remote_answer, answer, time_limit_s)
    return read_result(said, job, truncated=cut)


def _answer(target: Target, command: list[str], remote: str, local: Path, time_limit_s: float) -> str:
    """Runs a runner and returns the text of its answer."""
    completed = target.run(
        command, time_limit_s=time_limit_s, environment={"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    )
    if completed.returncode not in (0, 1):
        raise DeviceError(
            f"the runner ended with exit code {completed.returncode} on {target.address.name}: "
            f"{_last_line(completed.stderr)}",
            remedy="a negative code is the signal that ended it; -9 is often too little memory",
        )
    target.pull(remote, local)
    return local.read_text(encoding="utf-8")


def read_result(text: str, job: Job, *, truncated: tuple[int, ...] | None = None) -> RunnerResult:
    """Parses and checks the runner's answer to ``job``.

    Args:
        text: the answer.
        job: what was asked; the native runner numbers the sentences of the order, each once, by first use.
        truncated: the sentences that were cut here, before the native runner got them.

    Raises:
        DeviceError: the runner reported a failure, or the answer does not fit the job.
        MissingExtraError: the runner reported a package that is not installed.
    """
    try:
        value = json.loads(text)
        if isinstance(value, dict) and "error" in value:
            raise _failure(value["error"], job)
        if truncated is not None:
            used = list(dict.fromkeys(job.order))
            value["truncated_sentences"] = truncated
            value["runs"]["sentence"] = [used[place] for place in value["runs"]["sentence"]]
        result = RunnerResult.model_validate(value)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DeviceError(f"the runner's answer is not a result: {error}", remedy="measure again") from error
    problem = _misfit(result, job)
    if problem:
        raise DeviceError(f"the runner's answer does not fit the job: {problem}", remedy="measure again")
    return result


def _failure(error: dict[str, str], job: Job) -> DeviceError | MissingExtraError:
    kind, message = error.get("type", "error"), error.get("message", "")
    if kind == "ModuleNotFoundError" and job.runtime == "litert":
        return MissingExtraError("ai-edge-litert", "tflite")
    return DeviceError(
        f"{job.runtime} could not run {job.model}: {kind}: {message}",
        remedy="check the model with 'compressor inspect'",
    )


def _misfit(result: RunnerResult, job: Job) -> str | None:
    runs = result.runs
    if runs.sentence != job.order:
        return f"{len(runs.sentence)} runs came back in another order or number than the {len(job.order)} asked for"
    tokenize_ms = runs.tokenize_ms if runs.tokenize_ms is not None else (0.0,) * len(job.order)
    columns: Sequence[Sequence[float]] = (runs.tokens, runs.length, tokenize_ms, runs.inference_ms)
    if any(len(column) != len(job.order) for column in columns):
        return "its columns have different lengths"
    if not all(math.isfinite(value) and value >= 0 for value in tokenize_ms):
        return "a tokenisation time is negative or not finite"
    if not all(math.isfinite(value) and value > 0 for value in runs.inference_ms):
        return "an inference time is not positive and finite"
    if any(tokens > length for tokens, length in zip(runs.tokens, runs.length, strict=True)):
        return "a sentence has more tokens than the length it ran at"
    return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
