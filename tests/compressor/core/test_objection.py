"""What a schema objects to is told in the words of who wrote the file."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from compressor.core.objection import Objection, objection
from compressor.core.schema import Record


class Cosine(Record):
    kind: Literal["cosine"]
    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0


class Logits(Record):
    kind: Literal["logits"]
    temperature: Annotated[float, Field(gt=0)] = 1.0


class Settings(Record):
    losses: tuple[Annotated[Cosine | Logits, Field(discriminator="kind")], ...] = ()
    columns: str | tuple[str, str] = "text"
    lengths: dict[Annotated[int, Field(gt=0)], Cosine] = Field(default_factory=dict)
    tune: bool = False
    names: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)

    @model_validator(mode="after")
    def _tuned(self) -> "Settings":
        if self.tune and not self.losses:
            raise ValueError("'tune' needs 'losses'")
        return self


def found(value: Any) -> Objection:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(value)
    return objection(caught.value, value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"losses": [{"kind": "cosine", "weight": -1}]}, "losses[0].weight: found -1; expected a number of at least 0"),
        (
            {"losses": [{"kind": "logits", "temperature": 0}]},
            "losses[0].temperature: found 0; expected a number above 0",
        ),
        ({"losses": [{"kind": "cosin"}]}, "losses[0]: found {'kind': 'cosin'}; expected one of 'cosine', 'logits'"),
        ({"losses": [{}]}, "losses[0]: found {}; expected a mapping with the key 'kind'"),
        ({"losses": [{"kind": "logits", "temprature": 1}]}, "losses[0].temprature: unknown key"),
        ({"losses": 3}, "losses: found 3; expected a list"),
        ({"columns": 3}, "columns: found 3; expected text"),
        ({"lengths": {16: {"weight": 1.0}}}, "lengths.16.kind: the key is missing"),
        ({"lengths": {16: None}}, "lengths.16: found nothing; expected a mapping of keys"),
        ({"tune": "perhaps"}, "tune: found 'perhaps'; expected true or false"),
        ({"tune": True}, "'tune' needs 'losses'"),
        ({"names": []}, "names: found []; expected at least 1, not 0"),
    ],
)
def test_place_what_was_found_and_what_is_expected(value: Any, message: str) -> None:
    assert found(value).at("") == message


def test_a_union_s_own_names_stand_in_no_path_and_a_long_value_is_cut() -> None:
    objected = found({"columns": ["a" * 100]})
    assert objected.place == "columns"
    assert len(objected.text) < 120


def test_file_and_what_leads_to_the_value_stand_before_it() -> None:
    assert found({"tune": 3}).at("r.yaml", "stages[0].x").startswith("r.yaml: stages[0].x.tune: found 3")
    assert found({"tune": True}).at("r.yaml", "stages[0].x") == "r.yaml: stages[0].x: 'tune' needs 'losses'"
