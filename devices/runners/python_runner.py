"""Times a classifier sentence by sentence and keeps every single time.

Self-contained: Python's own library, numpy, tokenizers and the one runtime the job names, so that this file alone can
be copied to a board (Python 3.8 or later). It imports nothing of the package it lives in.

    python python_runner.py JOB.json [RESULT.json]

The job (see ``devices/runner.py`` for its typed form)::

    {"schema_version": 1, "runtime": "onnxruntime" | "litert" | "torch", "model": PATH, "tokenizer": PATH,
     "threads": 1, "max_tokens": 128, "lengths": [16, 32], "pad_to": null, "pad_id": 0,
     "signatures": [{"key": null, "length": null, "inputs": {"input_ids": {"name": "ids", "dtype": "int64"}}}],
     "sentences": ["...", ["first", "second"]], "order": [3, 0, 1],
     "warmup": {"min_runs": 3, "max_runs": 50, "max_seconds": 1.5, "tolerance": 0.05},
     "cpus": []}

``lengths`` are buckets: a sentence runs at the smallest that holds it; with none it runs at its own length;
``pad_to`` overrides both; ``cpus`` are the only cores used, if any are named. The result goes to RESULT.json, or to
standard output: times in milliseconds, one entry per run and column, in the order the runs were made. A failure is
reported the same way, as {"error": {"type", "message"}}, with exit code 1.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import inspect
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # these forms need a later Python than some boards have
    from collections.abc import Callable

    Call = Callable[[], Any]
    Job = dict[str, Any]
    """Parsed JSON; its shape is given above and checked by the side that writes it."""
    Sentence = str | list[str]

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
SETTLING_RUNS = 3
SETTLING_TEXT = "0 1 2"
CANONICAL = ("input_ids", "attention_mask", "token_type_ids")


def main(arguments: list[str]) -> int:
    """Runs the job named on the command line; returns the exit code."""
    if len(arguments) not in (1, 2):
        print("usage: python_runner.py JOB.json [RESULT.json]", file=sys.stderr)
        return 2
    try:
        # Runtimes write banners to standard output; the result must be alone there.
        with contextlib.redirect_stdout(sys.stderr):
            result = run(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    except Exception as error:  # whatever went wrong on the device is the answer
        result = {"error": {"type": type(error).__name__, "message": str(error)}}
    text = json.dumps(result)
    if len(arguments) == 2:
        Path(arguments[1]).write_text(text, encoding="utf-8")
    else:
        print(text)
    return 1 if "error" in result else 0


def run(job: Job) -> Job:
    """Does the whole job; returns the result as plain values."""
    if job.get("schema_version") != 1:
        raise ValueError(f"job schema {job.get('schema_version')!r}; this runner knows 1")
    threads = int(job["threads"])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    if job.get("cpus"):
        os.sched_setaffinity(0, job["cpus"])
    encodings = untimed_encodings(job)
    tokenize = tokenizer_of(job)
    started = time.perf_counter_ns()
    model = RUNTIMES[job["runtime"]](job)
    load_ms = milliseconds(started, time.perf_counter_ns())

    feeds: dict[int, int] = {}
    for index, encoding in encodings.items():
        feeds.setdefault(length_of(len(encoding.ids), job), index)

    first = encodings[job["order"][0]]
    cold_ms = timed(model.call(feed(first, job, model)))
    warmup_runs = sum(
        warm_up(model.call(feed(encodings[index], job, model)), job["warmup"], share=1 / len(feeds))
        for index in feeds.values()
    )
    columns, cores = timed_runs(job, tokenize, model, [encodings[index] for index in job["order"][:SETTLING_RUNS]])
    return {
        "schema_version": 1,
        "runtime": model.runtime,
        "python": sys.version.split()[0],
        "threads": threads,
        "load_ms": load_ms,
        "cold_ms": cold_ms,
        "warmup_runs": warmup_runs,
        "peak_memory_mb": peak_memory_mb(),
        "truncated_sentences": [index for index, encoding in encodings.items() if encoding.overflowing],
        "cores": cores or None,
        "runs": columns,
    }


def untimed_encodings(job: Job) -> dict[int, Any]:
    """Returns {index: encoding} of the sentences in the order: which lengths occur, and which sentences are cut.

    With a tokenizer of its own, gone afterwards: BPE and Unigram tokenizers remember the words they have split, and the
    timed one must meet each sentence for the first time.
    """
    tokenize = tokenizer_of(job)
    return {index: tokenize(job["sentences"][index]) for index in dict.fromkeys(job["order"])}


def timed_runs(
    job: Job, tokenize: Callable[[Sentence], Any], model: Any, settling: list[Any]
) -> tuple[dict[str, list[float]], list[int]]:
    """Times every entry of the order: a pass of tokenisation, then a pass of inference over prepared inputs.

    Two passes, because work between two inferences displaces what the model has in the caches and so is counted as its
    own: 5 to 9 % of a 1 ms model. What is timed is what a bare loop over the same inputs would take.

    ``settling`` are encodings whose inferences come first and are not kept: loading and collecting have emptied the
    caches that the warm-up had filled. The tokenizer settles on a text of ours, so that it remembers no word of theirs.

    Returns the columns, and the cores on which the inferences ended.
    """
    clock = time.perf_counter_ns
    order = job["order"]
    core, cores = core_reader(), set()
    tokenize_ms, encodings, inference_ms = [], list(settling), []
    gc.collect()
    gc.disable()
    try:
        for _ in range(SETTLING_RUNS):
            tokenize(SETTLING_TEXT)
        for index in order:
            sentence = job["sentences"][index]
            started = clock()
            encoding = tokenize(sentence)
            tokenize_ms.append(milliseconds(started, clock()))
            encodings.append(encoding)
        calls = [model.call(feed(encoding, job, model)) for encoding in encodings]
        for call in calls:
            started = clock()
            call()
            inference_ms.append(milliseconds(started, clock()))
            cores.add(core())
    finally:
        gc.enable()
    tokens = [len(encoding.ids) for encoding in encodings[len(settling) :]]
    return {
        "sentence": order,
        "tokens": tokens,
        "length": [length_of(count, job) for count in tokens],
        "tokenize_ms": tokenize_ms,
        "inference_ms": inference_ms[len(settling) :],
    }, sorted(cores - {-1})


def core_reader() -> Callable[[], int]:
    """Returns a function that gives the core it runs on, in well under a microsecond; -1 where the system has none."""
    try:
        import ctypes

        read: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (ImportError, OSError, AttributeError):
        return lambda: -1
    return read


def warm_up(call: Call, settings: Job, share: float) -> int:
    """Repeats ``call`` until two successive windows of runs have the same median, within bounds; returns the runs made.

    ``share`` is the part of ``max_seconds`` that this length may use.
    """
    window = max(int(settings["min_runs"]), 1)
    deadline = time.monotonic() + settings["max_seconds"] * share
    times: list[float] = []
    while len(times) < settings["max_runs"]:
        times.append(timed(call))
        if len(times) < 2 * window:
            if len(times) >= window and time.monotonic() > deadline:
                break
            continue
        older, newer = statistics.median(times[-2 * window : -window]), statistics.median(times[-window:])
        if abs(newer - older) <= settings["tolerance"] * older or time.monotonic() > deadline:
            break
    return len(times)


def timed(call: Call) -> float:
    """Returns the milliseconds of one call."""
    started = time.perf_counter_ns()
    call()
    return milliseconds(started, time.perf_counter_ns())


def milliseconds(start_ns: int, end_ns: int) -> float:
    """Returns a difference of two nanosecond readings in milliseconds."""
    return (end_ns - start_ns) / 1e6


def tokenizer_of(job: Job) -> Callable[[Sentence], Any]:
    """Returns a function from a sentence (text, or a pair) to its truncated encoding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(job["tokenizer"])
    tokenizer.no_padding()
    tokenizer.enable_truncation(limit_of(job))

    def tokenize(sentence: Sentence) -> Any:
        return tokenizer.encode(sentence) if isinstance(sentence, str) else tokenizer.encode(sentence[0], sentence[1])

    return tokenize


def limit_of(job: Job) -> int:
    """Returns the most tokens a sentence may have in this job."""
    if job["pad_to"]:
        return int(min(job["max_tokens"], job["pad_to"]))
    return int(min(job["max_tokens"], max(job["lengths"], default=job["max_tokens"])))


def length_of(tokens: int, job: Job) -> int:
    """Returns the number of tokens the model runs at for a sentence of ``tokens``, already cut to ``limit_of(job)``."""
    lengths = [job["pad_to"]] if job["pad_to"] else sorted(job["lengths"])
    if not lengths:
        return tokens
    for length in lengths:
        if tokens <= length:
            return int(length)
    raise ValueError(f"{tokens} tokens fit none of the lengths {lengths}")


def feed(encoding: Any, job: Job, model: Any) -> Job:
    """Returns {canonical input name: array of shape (1, length)} in the types the entry point takes."""
    import numpy as np

    length = length_of(len(encoding.ids), job)
    tokens = len(encoding.ids)
    entry = model.entry(length)
    values = {"input_ids": encoding.ids, "attention_mask": [1] * tokens, "token_type_ids": encoding.type_ids}
    arrays = {}
    for canonical, spec in entry["inputs"].items():
        row = np.full((1, length), job["pad_id"] if canonical == "input_ids" else 0, dtype=spec["dtype"])
        row[0, :tokens] = values[canonical]
        arrays[canonical] = row
    return {"entry": entry, "arrays": arrays}


def entry_of(signatures: list[Job], length: int) -> Job:
    """Returns the signature of exactly ``length``, else the one that takes any length."""
    for wanted in (length, None):
        for signature in signatures:
            if signature["length"] == wanted:
                return signature
    raise ValueError(f"no entry point takes {length} tokens; there are {[s['length'] for s in signatures]}")


def by_name(prepared: Job) -> Job:
    """Returns {the file's own input name: array}."""
    inputs = prepared["entry"]["inputs"]
    return {inputs[canonical]["name"]: array for canonical, array in prepared["arrays"].items()}


class OnnxRuntimeModel:
    """ONNX Runtime's CPU provider, sequential execution."""

    def __init__(self, job: Job) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = job["threads"]
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        self._session = onnxruntime.InferenceSession(job["model"], options, providers=["CPUExecutionProvider"])
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._signatures = job["signatures"]
        self.runtime = f"onnxruntime {onnxruntime.__version__}"

    def entry(self, length: int) -> Job:
        """Returns the entry point for a length."""
        return entry_of(self._signatures, length)

    def call(self, prepared: Job) -> Call:
        """Returns a function that runs the model once."""
        session, outputs, values = self._session, self._outputs, by_name(prepared)
        return lambda: session.run(outputs, values)


class LiteRTModel:
    """LiteRT's interpreter with its default CPU delegate (XNNPACK); one entry point per length."""

    def __init__(self, job: Job) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(model_path=job["model"], num_threads=job["threads"])
        self._runners: dict[str, Any] = {}
        self._signatures = job["signatures"]
        self.runtime = f"ai-edge-litert {importlib.metadata.version('ai-edge-litert')}"

    def entry(self, length: int) -> Job:
        """Returns the entry point for a length."""
        return entry_of(self._signatures, length)

    def call(self, prepared: Job) -> Call:
        """Returns a function that runs the model once."""
        key = prepared["entry"]["key"]
        if key not in self._runners:
            self._runners[key] = self._interpreter.get_signature_runner(key)
        runner, values = self._runners[key], by_name(prepared)
        return lambda: runner(**values)


class TorchModel:
    """A Hugging Face folder in PyTorch, eager attention, FP32: the baseline people start from."""

    def __init__(self, job: Job) -> None:
        import torch
        import transformers

        torch.set_num_threads(job["threads"])
        torch.set_num_interop_threads(1)
        self._torch = torch
        # The class that the checkpoint names, whatever its head.
        config = transformers.AutoConfig.from_pretrained(job["model"], local_files_only=True, trust_remote_code=False)
        named = (config.architectures or ["AutoModelForSequenceClassification"])[0]
        self._model = (
            getattr(transformers, named)
            .from_pretrained(
                job["model"],
                attn_implementation="eager",
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
            .eval()
        )
        self._segments = getattr(self._model.config, "type_vocab_size", 0) or 0
        accepted = inspect.signature(self._model.forward).parameters
        self._entry = {
            "key": None,
            "length": None,
            "inputs": {name: {"name": name, "dtype": "int64"} for name in CANONICAL if name in accepted},
        }
        self.runtime = f"torch {torch.__version__}"

    def entry(self, length: int) -> Job:
        """Returns the one entry point, which takes any length."""
        return self._entry

    def call(self, prepared: Job) -> Call:
        """Returns a function that runs the model once."""
        values = {name: self._torch.from_numpy(array) for name, array in by_name(prepared).items()}
        if "token_type_ids" in values and self._segments < 2:
            values["token_type_ids"].zero_()
        model, inference_mode = self._model, self._torch.inference_mode

        def call() -> Any:
            with inference_mode():
                return model(**values)[0]

        return call


RUNTIMES: dict[str, type] = {
    "onnxruntime": OnnxRuntimeModel,
    "litert": LiteRTModel,
    "torch": TorchModel,
}


def peak_memory_mb() -> float | None:
    """Returns the peak resident memory in 10^6 bytes, or None where the system does not tell.

    Linux's own counter for this address space is read, because ``ru_maxrss`` also counts the parent before ``exec``.
    """
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    return peak_bytes / 1e6 if math.isfinite(peak_bytes) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
