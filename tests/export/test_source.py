"""Lengths as people write them become buckets that text fits."""

import pytest

from compressor.core.errors import UsageError
from compressor.models import load_config
from export.source import check_lengths


@pytest.fixture(scope="module")
def config(checkpoint_of):
    return load_config(checkpoint_of("albert"))


def test_a_smallest_shape_of_one_token_is_no_bucket_of_its_own(config, caplog):
    assert check_lengths((1, 32, 64), config) == (32, 64)
    assert "no text fits 1 tokens" in caplog.text and "the length 32 takes all up to it" in caplog.text
    caplog.clear()
    assert check_lengths((64, 3, 32, 32), config) == (3, 32, 64)
    assert not caplog.messages


@pytest.mark.parametrize("lengths", [(), (0, 32), (-1, 32), (1,), (2,), (32, 65)])
def test_lengths_that_leave_nothing_or_go_beyond_the_model_are_refused(config, lengths):
    with pytest.raises(UsageError, match="expected numbers from 3 to 64"):
        check_lengths(lengths, config)
