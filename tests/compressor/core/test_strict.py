import pytest

from compressor.core.errors import RecipeError
from compressor.core.schema import Record
from compressor.core.strict import parse, read_yaml


class Inner(Record):
    temperature: float = 1.0


class Outer(Record):
    version: int
    losses: tuple[Inner, ...] = ()


def test_an_unknown_key_names_its_place_and_the_nearest_known_key():
    with pytest.raises(RecipeError, match=r"^r\.yaml: losses\[0\]\.temprature: unknown key") as caught:
        parse(Outer, {"version": 1, "losses": [{"temprature": 2.0}]}, where="r.yaml")
    assert caught.value.remedy == "did you mean 'temperature'?"


def test_a_misspelt_required_key_is_told_as_unknown_not_as_missing():
    with pytest.raises(RecipeError, match="vresion: unknown key") as caught:
        parse(Outer, {"vresion": 1}, where="r.yaml")
    assert "version" in caught.value.remedy


def test_a_value_of_the_wrong_kind_shows_what_was_found():
    with pytest.raises(RecipeError, match=r"^r\.yaml: version: found 'one'; expected a whole number"):
        parse(Outer, {"version": "one"}, where="r.yaml")


def test_a_part_of_a_file_is_named_with_its_file():
    with pytest.raises(RecipeError, match=r"^r\.yaml: stages\[1\]\.outer\.version: the key is missing "):
        parse(Outer, {}, where="r.yaml", below="stages[1].outer")
    with pytest.raises(RecipeError, match=r"^r\.yaml: stages\[1\]\.outer holds no mapping; expected the keys version"):
        parse(Outer, [], where="r.yaml", below="stages[1].outer")


def test_yaml_errors_name_the_line(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("version: 1\nstages: [a\n")
    with pytest.raises(RecipeError, match="not valid YAML at line"):
        read_yaml(file)


def test_a_repeated_key_is_an_error(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("version: 1\nversion: 2\n")
    with pytest.raises(RecipeError, match="'version' stands twice"):
        read_yaml(file)


def test_a_missing_file_and_bad_utf8_are_told(tmp_path):
    with pytest.raises(RecipeError, match="does not exist"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("naïve: 1".encode("latin-1"))
    with pytest.raises(RecipeError, match="cannot be read"):
        read_yaml(tmp_path / "latin.yaml")
