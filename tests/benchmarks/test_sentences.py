from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from benchmarks.sentences import sample, split
from compressor.core.errors import UsageError

TEXTS = tuple("x" * int(length) for length in np.random.default_rng(0).lognormal(3, 0.7, size=5000))


def test_a_sample_keeps_the_mix_of_lengths() -> None:
    chosen = [len(TEXTS[index]) for index in sample(TEXTS, 200, seed=1)]
    whole = [len(text) for text in TEXTS]
    for share in (0.1, 0.25, 0.5, 0.75, 0.9):
        assert np.quantile(chosen, share) == pytest.approx(np.quantile(whole, share), rel=0.05)
    assert len(set(sample(TEXTS, 200, seed=1))) == 200


def test_order_is_random_seeded_and_not_by_length() -> None:
    assert sample(TEXTS, 200, seed=1) == sample(TEXTS, 200, seed=1)
    assert sample(TEXTS, 200, seed=1) != sample(TEXTS, 200, seed=2)
    lengths = [len(TEXTS[index]) for index in sample(TEXTS, 200, seed=1)]
    assert abs(np.corrcoef(lengths[1:], lengths[:-1])[0, 1]) < 0.25


def test_more_runs_than_sentences_use_each_equally_often() -> None:
    counts = Counter(sample(("a", "bb", "ccc"), 20, seed=0))
    assert set(counts) == {0, 1, 2}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert sum(counts.values()) == 20


def test_every_sentence_has_the_same_chance() -> None:
    counts = Counter(index for seed in range(600) for index in sample(("a", ("bb", "b"), "ccc", "c"), 1, seed=seed))
    assert min(counts.values()) > 100


def test_nothing_to_draw_from_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="--sentences"):
        sample((), 10, seed=0)
    with pytest.raises(UsageError):
        sample(("a",), 0, seed=0)


def test_split_keeps_order_and_leaves_no_part_empty() -> None:
    assert split((4, 2, 3, 1, 0), 2) == [(4, 2, 3), (1, 0)]
    assert split((1, 2), 5) == [(1,), (2,)]
