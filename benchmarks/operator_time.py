"""Where an ONNX model's time goes: the share of each kind of operator, from ONNX Runtime's own profile."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from compressor.core.artifact import Artifact, Signature

PROFILED_RUNS = 20
_WARM_RUNS = 3


def operator_shares(artifact: Artifact, tokens: int, *, threads: int = 1) -> dict[str, float]:
    """Returns {operator: share of the time inside operators}, the largest first, on this machine.

    Operators are those after ONNX Runtime's fusions. Profiling costs time of its own, so only shares mean something.

    Args:
        artifact: an ONNX artifact.
        tokens: the length to run at.
        threads: threads the model may use.
    """
    import onnxruntime

    with tempfile.TemporaryDirectory(prefix="compressor-profile-") as folder:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(str(artifact.model_path), options, providers=["CPUExecutionProvider"])
        feed = _feed(_signature(artifact, tokens), tokens)
        for _ in range(_WARM_RUNS + PROFILED_RUNS):
            session.run(None, feed)
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    spent: Counter[str] = Counter()
    runs = 0
    for event in events:
        runs += event.get("name") == "model_run"
        name = event.get("args", {}).get("op_name")
        if event.get("cat") == "Node" and name and event["name"].endswith("_kernel_time") and runs >= _WARM_RUNS:
            spent[name] += event["dur"]
    total = sum(spent.values())
    return {name: time / total for name, time in spent.most_common()} if total else {}


def _signature(artifact: Artifact, tokens: int) -> Signature:
    for wanted in (tokens, None):
        for signature in artifact.io.signatures:
            if signature.length == wanted:
                return signature
    return artifact.io.signatures[0]


def _feed(signature: Signature, tokens: int) -> dict[str, np.ndarray]:
    length = signature.length or tokens
    ids = {"input_ids": 1, "attention_mask": 1, "token_type_ids": 0}
    types = {tensor.name: tensor.dtype for tensor in signature.inputs}
    return {name: np.full((1, length), ids[role], dtype=types[name]) for role, name in signature.roles.items()}
