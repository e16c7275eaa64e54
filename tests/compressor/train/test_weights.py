"""How much a loss counts over a run, and that no part of a run is left without one."""

import pytest
from pydantic import ValidationError

from compressor.train.weights import Ramp, Scheduled, check_covered


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"weight": 2.5}, [2.5, 2.5, 2.5, 2.5, 2.5]),
        ({"until": 0.5}, [1, 1, 0, 0, 0]),
        ({"after": 0.5}, [0, 0, 1, 1, 1]),
        ({"weight": {"from": 1, "to": 0}}, [1, 0.75, 0.5, 0.25, 0]),
        ({"weight": {"from": 0, "to": 2, "start": 0.25, "end": 0.75}}, [0, 0, 1, 2, 2]),
        ({"weight": {"from": 0, "to": 3, "start": 0.5, "end": 0.5}}, [0, 0, 3, 3, 3]),
        ({"weight": {"from": 1, "to": 0, "end": 0.5}, "after": 0.2, "until": 0.75}, [0, 0.5, 0, 0, 0]),
    ],
)
def test_weights(settings: dict, expected: list[float]) -> None:
    part = Scheduled.model_validate(settings)
    assert [part.weight_at(progress) for progress in (0, 0.25, 0.5, 0.75, 1)] == pytest.approx(expected)
    assert Scheduled.model_validate(part.model_dump(mode="json")) == part


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": -1},
        {"weight": 0},
        {"after": 1.0},
        {"until": 0.0},
        {"after": 0.6, "until": 0.4},
        {"weight": {"from": 1, "to": 0, "start": 0.6, "end": 0.4}},
        {"weight": {"from": 0, "to": 0}},
        {"weight": {"from": 1, "to": -1}},
    ],
)
def test_what_never_counts_is_refused(wrong: dict) -> None:
    with pytest.raises(ValidationError):
        Scheduled.model_validate(wrong)


def test_a_run_is_covered_from_its_first_step_to_its_last() -> None:
    first, last = Scheduled(until=0.4), Scheduled(after=0.4)
    check_covered([first, last])
    check_covered([Scheduled(weight=Ramp(first=1, last=0))])
    with pytest.raises(ValueError, match="at 40% of the run every loss has weight 0"):
        check_covered([first])
    with pytest.raises(ValueError, match="at 40% of the run"):
        check_covered([first, Scheduled(after=0.5)])
    with pytest.raises(ValueError, match="at 0% of the run"):
        check_covered([Scheduled(weight=Ramp(first=0, last=1))])
