from __future__ import annotations

import pytest

from benchmarks.looks import MAX_DRIFT, Need, describe, plan_looks, runs_needed
from compressor.core.errors import UsageError


def test_the_error_is_split_over_the_looks_and_the_margin_ends_at_zero() -> None:
    looks = plan_looks([Need(share=0.95)])
    assert [look.runs for look in looks] == [100, 200, 350, 500]
    assert [look.processes for look in looks] == [6, 10, 14, 18]
    assert sum(look.share_of_error for look in looks) == pytest.approx(1.0)
    assert looks[-1].margin == 0.0
    assert all(0 < look.margin < MAX_DRIFT for look in looks[:-1])


def test_a_clear_pass_on_p95_needs_at_most_100_runs() -> None:
    first = plan_looks([Need(share=0.95)])[0]
    assert first.runs <= 100
    assert runs_needed(0.95, 0.05 * first.share_of_error) <= first.runs


def test_looks_that_cannot_pass_yet_are_left_out() -> None:
    looks = plan_looks([Need(share=0.99), Need(share=0.95)])
    assert looks[-1].runs >= 2 * 299
    for look in looks:
        assert runs_needed(0.99, 0.05 * look.share_of_error) <= look.runs
    assert sum(look.share_of_error for look in looks) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("need", "needed"), [(Need(share=0.95), 59), (Need(share=0.99), 299), (Need(share=0.95, part=0.1), 649)]
)
def test_a_percentile_that_needs_more_runs_than_allowed_says_how_many(need: Need, needed: int) -> None:
    with pytest.raises(UsageError, match=f"at least {needed}") as caught:
        plan_looks([need], max_runs=needed - 1)
    assert f"--max-runs {needed}" in caught.value.remedy
    assert caught.value.exit_code == 2
    assert plan_looks([need], max_runs=needed)[-1].runs == needed


def test_the_plan_says_what_is_needed() -> None:
    needs = [Need(share=0.99), Need(share=0.95, part=0.25)]
    said = describe(plan_looks(needs), needs)
    assert "p99: " in said
    assert "p95 of a length that is 25% of the sentences" in said
    assert "5% each way" in said


def test_without_percentiles_there_is_still_a_plan() -> None:
    assert plan_looks([], max_runs=1)[-1].runs == 1
    assert plan_looks([], first=100)[0].runs >= 100
