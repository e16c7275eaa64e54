"""What the runner adds to a short model's own time: its single times against a bare loop in the same process.

Both are taken in short blocks of one process, in random order, on one ONNX graph made here, so that the machine's drift
meets both; a second bare loop in each round shows what the comparison can resolve.

    python -m benchmarks.studies.harness_overhead [--rounds 60] [--runs 50] [--width 384] [--depth 8]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

from devices.runners import python_runner as runner

LENGTH = 32


def graph(path: Path, *, width: int, depth: int) -> None:
    """Writes a stack of ``depth`` square matmuls over embedded tokens."""
    generator = np.random.default_rng(0)
    weights = {
        "table": generator.normal(size=(8, width)),
        **{f"w{i}": generator.normal(size=(width, width)) for i in range(depth)},
    }
    nodes, last = [helper.make_node("Gather", ["table", "input_ids"], ["x0"])], "x0"
    for i in range(depth):
        nodes.append(helper.make_node("MatMul", [last, f"w{i}"], [f"x{i + 1}"]))
        last = f"x{i + 1}"
    made = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, [1, "tokens"])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, "tokens", width])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def job(folder: Path, runs: int) -> runner.Job:
    """Returns a job of ``runs`` runs of one sentence, as the runner takes it."""
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    inputs = {"input_ids": {"name": "input_ids", "dtype": "int64"}}
    return {
        "runtime": "onnxruntime",
        "model": str(folder / "model.onnx"),
        "tokenizer": str(folder / "tokenizer.json"),
        "threads": 1,
        "max_tokens": LENGTH,
        "lengths": [LENGTH],
        "pad_to": None,
        "pad_id": 0,
        "signatures": [{"key": None, "length": None, "inputs": inputs}],
        "sentences": ["word " * (LENGTH - 2)],
        "order": [0] * runs,
    }


def bare(call: runner.Call, runs: int) -> list[float]:
    """Times nothing but the call."""
    times = []
    for _ in range(runs):
        started = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - started) / 1e6)
    return times


def main() -> None:
    """Prints both medians and the median ratio over the pairs of blocks, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--depth", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        graph(Path(name) / "model.onnx", width=options.width, depth=options.depth)
        work = job(Path(name), options.runs)
        tokenize, model = runner.tokenizer_of(work), runner.OnnxRuntimeModel(work)
        encoding = tokenize(work["sentences"][0])
        call, settling = model.call(runner.feed(encoding, work, model)), [encoding] * runner.SETTLING_RUNS
        bare(call, 200)
        ways = {
            "bare": lambda: bare(call, options.runs),
            "bare again": lambda: bare(call, options.runs),
            "runner": lambda: runner.timed_runs(work, tokenize, model, settling)[0]["inference_ms"],
        }
        medians: dict[str, list[float]] = {way: [] for way in ways}
        shuffle = random.Random(0)
        for _ in range(options.rounds):
            for way in shuffle.sample(sorted(ways), len(ways)):
                medians[way].append(statistics.median(ways[way]()))
    print(
        json.dumps(
            {
                "bare_p50_ms": round(statistics.median(medians["bare"]), 4),
                "runner_p50_ms": round(statistics.median(medians["runner"]), 4),
                "overhead_percent": _change(medians["bare"], medians["runner"]),
                "bare_again_percent": _change(medians["bare"], medians["bare again"]),
                "runs_each": options.rounds * options.runs,
            }
        )
    )


def _change(base: list[float], other: list[float]) -> float:
    """Returns the median change from ``base`` to ``other`` over the rounds, in percent."""
    return round(100 * (statistics.median(b / a for a, b in zip(base, other, strict=True)) - 1), 2)


if __name__ == "__main__":
    main()
