"""The runner's own functions, called in this process: what is timed, and at which length."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from compressor.text import bucket
from devices.runner import WarmUp
from devices.runners import python_runner
from tests.models import tiny_tokenizer

SENTENCES = ["where is my order", "please cancel the order now", ["i want a refund", "it is late"], "pay the bill"]


class FakeModel:
    """Answers at once."""

    runtime = "fake 1.0"

    def __init__(self, job: dict[str, Any]) -> None:
        self.lengths: list[int] = []

    def entry(self, length: int) -> dict[str, Any]:
        return {"key": None, "length": None, "inputs": {"input_ids": {"name": "ids", "dtype": "int64"}}}

    def call(self, prepared: dict[str, Any]) -> Any:
        return lambda: self.lengths.append(prepared["arrays"]["input_ids"].shape[1])


@pytest.fixture
def job(tmp_path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # the runner sets them; this restores them
    monkeypatch.setitem(python_runner.RUNTIMES, "fake", FakeModel)
    tiny_tokenizer().save_pretrained(tmp_path)
    return {
        "schema_version": 1,
        "runtime": "fake",
        "model": "",
        "tokenizer": str(tmp_path / "tokenizer.json"),
        "threads": 1,
        "max_tokens": 64,
        "lengths": [8, 16],
        "pad_to": None,
        "pad_id": 0,
        "signatures": [],
        "sentences": SENTENCES,
        "order": [3, 0, 2, 1],
        "warmup": WarmUp(min_runs=1, max_runs=3).model_dump(),
    }


def test_the_timed_tokenizer_meets_each_sentence_for_the_first_time(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """BPE and Unigram tokenizers keep a cache of words: what has been seen is split in a fraction of the time."""
    seen: list[list[Any]] = []
    original = python_runner.tokenizer_of

    def recording(job: dict[str, Any]) -> Any:
        tokenize, calls = original(job), []
        seen.append(calls)

        def recorded(sentence: Any) -> Any:
            calls.append(sentence)
            return tokenize(sentence)

        return recorded

    monkeypatch.setattr(python_runner, "tokenizer_of", recording)
    result = python_runner.run(job)
    timed = seen[-1]
    assert len(seen) == 2
    assert [sentence for sentence in timed if sentence in SENTENCES] == [SENTENCES[index] for index in job["order"]]
    words = {word for sentence in SENTENCES for part in ([sentence] if isinstance(sentence, str) else sentence)
             for word in part.split()}  # fmt: skip
    warming = timed[: -len(job["order"])]
    assert warming, "the tokenizer is not warm"
    assert not words & {word for sentence in warming for word in sentence.split()}
    assert {len(column) for column in result["runs"].values()} == {4}
    assert result["runs"]["sentence"] == job["order"]


LENGTHS = ([], [8], [8, 16, 32], [32, 8, 16])


@pytest.mark.parametrize(("lengths", "tokens"), itertools.product(LENGTHS, (1, 7, 8, 9, 16, 17, 32, 33)))
def test_the_length_a_sentence_runs_at_is_the_one_the_package_chooses(lengths: list[int], tokens: int) -> None:
    """The runner is copied to boards and cannot import the package, so it has a rule of its own: the same."""
    work = {"lengths": lengths, "pad_to": None, "max_tokens": 64}
    try:
        expected = bucket(tokens, lengths)
    except ValueError:
        with pytest.raises(ValueError, match="fit none of the lengths"):
            python_runner.length_of(tokens, work)
        return
    assert python_runner.length_of(tokens, work) == expected


@pytest.mark.parametrize(
    ("changes", "longest"),
    [({}, 16), ({"max_tokens": 12}, 12), ({"lengths": []}, 64), ({"pad_to": 10}, 10), ({"lengths": [16, 8]}, 16)],
)
def test_too_long_a_sentence_is_cut_to_a_length_the_model_has(
    job: dict[str, Any], changes: dict[str, Any], longest: int
) -> None:
    job = {**job, **changes, "sentences": ["where is my card " * 40], "order": [0]}
    result = python_runner.run(job)
    assert result["truncated_sentences"] == [0]
    assert result["runs"]["tokens"] == [longest]
    assert result["runs"]["length"] == [bucket(longest, [job["pad_to"]] if job["pad_to"] else job["lengths"])]


def test_a_sentence_longer_than_the_one_length_is_no_length_of_its_own(job: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="fit none"):
        python_runner.length_of(11, {**job, "pad_to": 10})


@pytest.mark.parametrize("settled_ms", [1.0, 10.0, 40.0])
def test_a_model_that_settles_ends_its_warm_up_by_stability(settled_ms: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the default bounds, four lengths, and first runs that are slower by half."""
    clock, made = [0.0], []

    def timed(call: Any) -> float:
        made.append(settled_ms * (1 + 0.5 / 4 ** len(made)))
        clock[0] += made[-1] / 1000
        return made[-1]

    monkeypatch.setattr(python_runner, "timed", timed)
    monkeypatch.setattr(python_runner.time, "monotonic", lambda: clock[0])
    settings = WarmUp()
    runs = python_runner.warm_up(lambda: None, settings.model_dump(), share=1 / 4)
    assert 2 * settings.min_runs <= runs < settings.max_runs
    assert clock[0] < settings.max_seconds / 4
    assert made[-1] == pytest.approx(settled_ms, rel=settings.tolerance)
