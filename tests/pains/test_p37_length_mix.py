"""P37: speed-ups published at one padded length say nothing about short texts; the user's own length mix decides."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure import measure
from benchmarks.statistics import summary
from benchmarks.subject import subject_of
from devices.profiles import parse_device
from devices.runner import WarmUp
from tests.benchmarks.artifacts import tiny_artifact

SHORT, MEDIUM, LONG = "pay my bill", "where is my order when will it arrive please", "i want the money " * 7


def test_latency_is_reported_on_the_user_s_mix_of_lengths_with_tokenisation_apart(tmp_path: Path) -> None:
    texts = (*[SHORT] * 70, *[MEDIUM] * 20, *[LONG] * 10)
    artifact = tiny_artifact(tmp_path / "onnx-fp32")
    (found,) = measure(
        [subject_of(artifact)],
        texts,
        device=parse_device("host"),
        runs=50,
        processes=2,
        warmup=WarmUp(min_runs=1, max_runs=3, max_seconds=1.0),
    )
    assert Counter(found.runs.length) == {8: 35, 16: 10, 32: 5}
    table = summary(found)
    assert {length: row.runs for length, row in table.by_length.items()} == {8: 35, 16: 10, 32: 5}
    total = np.array(found.runs.inference_ms) + np.array(found.runs.tokenize_ms)
    assert table.total_p95_ms == pytest.approx(np.quantile(total, 0.95, method="inverted_cdf"))
    assert table.tokenize_p50_ms > 0
    assert all(row.total_p50_ms > row.p50_ms for row in table.by_length.values())
