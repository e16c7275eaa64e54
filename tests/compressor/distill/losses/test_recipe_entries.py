"""A recipe's entry becomes a typed loss; what it cannot mean is refused."""

import pytest
from pydantic import TypeAdapter, ValidationError

from compressor.distill.losses import HiddenLoss, LabelsLoss, LogitsLoss, LossConfig, MobileBERTLoss
from compressor.train.weights import Ramp

parse = TypeAdapter(LossConfig).validate_python


def test_a_recipe_entry_becomes_a_typed_loss() -> None:
    assert parse({"name": "logits", "temperature": 4.0}) == LogitsLoss(temperature=4.0)
    assert parse({"name": "hidden", "map": [1, 3]}) == HiddenLoss(map=(1, 3))
    assert parse({"name": "labels", "weight": 0.5}) == LabelsLoss(weight=0.5)
    assert parse({"name": "mobilebert", "layers": [0], "until": 0.5}) == MobileBERTLoss(layers=(0,), until=0.5)
    ramp = parse({"name": "labels", "weight": {"from": 0, "to": 1, "end": 0.5}})
    assert ramp == LabelsLoss(weight=Ramp(first=0, last=1, end=0.5))
    assert parse(ramp.model_dump(mode="json")) == ramp


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "logit"},
        {"name": "labels", "temperature": 2},
        {"name": "logits", "temperature": 0},
        {"name": "logits", "weight": 0},
        {"name": "logits", "weight": {"from": 0, "to": 0}},
        {"name": "logits", "weight": {"from": 1}},
        {"name": "logits", "after": 0.5, "until": 0.5},
        {"name": "cosine", "layers": "first"},
        {"name": "cosine", "id": "total"},
        {"name": "cosine", "id": "a.b"},
    ],
)
def test_nonsense_is_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        parse(wrong)
