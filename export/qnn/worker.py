"""Runs the vendor's compiler and simulator in a process of its own; started as a script, imports nothing of ours.

The QNN libraries end the process on some inputs instead of raising, hold what they loaded until it ends, and write to
standard output. Here none of that reaches the caller. Requests and answers are pickles on standard input and output,
each behind its length; the answer to a failed request is ``{"error": text}``.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

PROVIDER = "QNNExecutionProvider"
_ERRORS_ONLY = 3
_DISABLED = ["WeightBiasQuantization"]
"""ONNX Runtime would quantise the weights that a mixed graph leaves in float on purpose, between Q and DQ."""


class Worker:
    """Sessions by length, compiled or loaded, and the answers they give."""

    def __init__(self) -> None:
        import onnxruntime
        import onnxruntime_qnn

        self._ort: Any = onnxruntime
        self._backend = onnxruntime_qnn.get_qnn_htp_path()
        onnxruntime.register_execution_provider_library(PROVIDER, onnxruntime_qnn.get_library_path())
        self._device = next(item for item in onnxruntime.get_ep_devices() if item.ep_name == PROVIDER)
        self._sessions: dict[int, Any] = {}

    def compile(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compiles one graph a length into one context, in which equal weights stand once; keeps the sessions."""
        lengths = request["lengths"]
        # A graph is named after a hash of the path it came from: relative paths give the same bytes in every folder.
        os.chdir(request["folder"])
        for number, length in enumerate(lengths):
            options = self._options(request["options"], f"trace_{length}")
            options.add_free_dimension_override_by_name(request["dimension"], length)
            options.add_session_config_entry("ep.context_enable", "1")
            options.add_session_config_entry("ep.context_embed_mode", "0")
            options.add_session_config_entry("ep.context_file_path", f"model_{length}.onnx")
            if len(lengths) > 1:
                options.add_session_config_entry("ep.share_ep_contexts", "1")
                if number + 1 == len(lengths):
                    options.add_session_config_entry("ep.stop_share_ep_contexts", "1")
            source = Path(f"tokens_{length}.onnx")  # a context takes each name once
            source.symlink_to(Path(request["model"]).resolve())
            self._sessions[length] = self._ort.InferenceSession(str(source), options, disabled_optimizers=_DISABLED)
            source.unlink()
        return {}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Loads a compiled file."""
        options = self._options(request["options"], None)
        self._sessions[request["length"]] = self._ort.InferenceSession(request["model"], options)
        return {}

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Runs one padded sentence."""
        return {"outputs": self._sessions[request["length"]].run(None, request["feed"])}

    def _options(self, provider: dict[str, str], trace: str | None) -> Any:
        options = self._ort.SessionOptions()
        options.log_severity_level = _ERRORS_ONLY
        options.intra_op_num_threads = 1
        traced = {} if trace is None else {"enable_framework_op_trace": "1", "framework_op_trace_dir": trace}
        options.add_provider_for_devices([self._device], {"backend_path": self._backend, **provider, **traced})
        return options


def _read(stream: BinaryIO) -> dict[str, Any] | None:
    head = stream.read(8)
    if len(head) < 8:
        return None
    request: dict[str, Any] = pickle.loads(stream.read(struct.unpack("<Q", head)[0]))
    return request


def _write(stream: BinaryIO, answer: dict[str, Any]) -> None:
    content = pickle.dumps(answer)
    stream.write(struct.pack("<Q", len(content)) + content)
    stream.flush()


def main() -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the libraries print must not end up among the answers
    requests = sys.stdin.buffer
    worker: Worker | None = None
    while (request := _read(requests)) is not None:
        try:
            worker = worker or Worker()
            answer = getattr(worker, request.pop("do"))(request)
        except Exception as error:  # whatever it is, the caller has to be told
            answer = {"error": f"{type(error).__name__}: {error}"}
        _write(answers, answer)
    answers.flush()
    os._exit(0)  # the libraries' own clean-up at exit may crash, after all the work is done


if __name__ == "__main__":
    main()
