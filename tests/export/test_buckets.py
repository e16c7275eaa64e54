import itertools
import random

import pytest

from export.buckets import STEP, buckets_for


def padded(lengths, buckets, most):
    return sum(min(end for end in buckets if end >= min(length, most)) for length in lengths)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_choice_leaves_less_padding(seed):
    draw = random.Random(seed)
    lengths = [max(3, int(draw.lognormvariate(3, 0.7))) for _ in range(400)]
    buckets = buckets_for(lengths, max_tokens=128, count=3)
    ends = range(STEP, 129, STEP)
    others = [choice for choice in itertools.combinations(ends, 3) if choice[-1] >= min(128, max(lengths))]
    assert padded(lengths, buckets, 128) == min(padded(lengths, choice, 128) for choice in others)


def test_no_more_buckets_than_are_of_use():
    assert buckets_for([5, 6, 7], max_tokens=512) == (8,)
    assert buckets_for([5, 6, 7, 30], max_tokens=512) == (8, 32)


def test_longer_sentences_than_the_model_takes_count_as_that_long():
    assert buckets_for([600, 9], max_tokens=510) == (16, 510)
    assert buckets_for([], max_tokens=64) == (64,)
