import pytest

from compressor.core.errors import ArtifactError
from export.tensorrt.device.build_engine import Profile
from export.tensorrt.profiles import from_text, profiles_for, to_text, whole_range


def test_profiles_cover_every_length_once_and_are_tuned_for_the_bucket():
    profiles = profiles_for((64, 16, 32))
    assert profiles == (Profile(1, 16, 16), Profile(17, 32, 32), Profile(33, 64, 64))
    covered = [length for low, _, high in profiles for length in range(low, high + 1)]
    assert covered == list(range(1, 65))
    assert whole_range(profiles) == Profile(1, 32, 64)


def test_profiles_survive_the_file():
    profiles = profiles_for((16, 32))
    assert from_text(to_text(profiles)) == profiles
    assert from_text("") == ()
    for text in ("1:2", "a:b:c", "1:2:3:4"):
        with pytest.raises(ArtifactError, match="profiles"):
            from_text(text)
