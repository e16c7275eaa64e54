"""P31: every length has a narrow profile; they come from the user's sentences, and nonsense is refused by name."""

import pytest

from compressor.core.errors import UsageError
from export.backend import ConversionSpec
from export.buckets import buckets_for
from export.tensorrt.profiles import Profile, check_profiles, parse_profiles, profiles_for, profiles_of


def spec(**more):
    return ConversionSpec(
        lengths=(16, 32), max_tokens=64, takes_token_types=True, pad_id=0, num_labels=2, model_type="bert", **more
    )


def test_sentences_decide_the_buckets_and_the_buckets_the_profiles():
    lengths = [7] * 50 + [20] * 30 + [24] * 15 + [61] * 5
    buckets = buckets_for(lengths, max_tokens=64, count=3)
    assert buckets == (8, 24, 64)
    profiles = profiles_for(buckets)
    assert profiles == (Profile(1, 8, 8), Profile(9, 24, 24), Profile(25, 64, 64))
    for length in lengths:
        assert sum(profile.min_tokens <= length <= profile.max_tokens for profile in profiles) == 1


def test_profiles_that_were_asked_for_are_taken_as_they_are():
    asked = parse_profiles("1:16:32,33:40:64")
    assert asked == (Profile(1, 16, 32), Profile(33, 40, 64))
    assert profiles_of(spec(profiles=asked)) == asked
    assert profiles_of(spec()) == (Profile(1, 16, 16), Profile(17, 32, 32))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1:64:32", "1 <= min <= opt <= max"),
        ("0:8:16", "1 <= min <= opt <= max"),
        ("20:16:32", "1 <= min <= opt <= max"),
        ("1:16:32,1:8:16", "does not come after"),
        ("17:16:32,1:40:64", "1 <= min <= opt <= max"),
        ("17:20:32,1:40:64", "does not come after"),
        ("1:16:32,33:48:32", "1 <= min <= opt <= max"),
        ("16", "min:opt:max"),
        ("a:b:c", "min:opt:max"),
        ("", "at least one"),
    ],
)
def test_nonsense_is_refused_with_the_profile_that_is_wrong(text, reason):
    with pytest.raises(UsageError, match=reason):
        parse_profiles(text)


def test_a_profile_beyond_the_models_positions_is_refused():
    with pytest.raises(UsageError, match="beyond 64 tokens"):
        profiles_of(spec(profiles=((1, 16, 32), (33, 65, 128))))
    assert check_profiles([Profile(1, 64, 64)], max_tokens=64) == (Profile(1, 64, 64),)
