"""A file of ours that cannot be read back is told with the place in it."""

from pathlib import Path

import pytest

from compressor.core.errors import ArtifactError
from compressor.core.schema import Record
from compressor.core.stored import read_record


class Part(Record):
    size: int


class Whole(Record):
    parts: tuple[Part, ...]


def read(file: Path) -> Whole:
    return read_record(Whole, file, error=ArtifactError, remedy="make it again")


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    whole = Whole(parts=(Part(size=1), Part(size=2)))
    file = tmp_path / "whole.json"
    file.write_text(whole.model_dump_json())
    assert read(file) == whole


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"parts": [{"size": 1}, {"size": "x"}]}', r"cannot be read: parts\[1\]\.size: found 'x'"),
        ('{"parts": [', r"cannot be read: not valid JSON: \w+"),
        ('{"parts": [], "more": 1}', "cannot be read: more: unknown key"),
        ("{}", "cannot be read: parts: the key is missing"),
    ],
)  # fmt: skip
def test_place_found_and_expected_are_named_in_the_caller_s_error(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "whole.json"
    file.write_text(content)
    with pytest.raises(ArtifactError, match=message) as caught:
        read(file)
    assert str(file) in caught.value.message
    assert "pydantic" not in caught.value.message
    assert caught.value.remedy == "make it again"


def test_no_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="does not exist"):
        read(tmp_path / "none.json")
    with pytest.raises(ArtifactError, match=r"cannot be read: Is a directory"):
        read(tmp_path)
