from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.report import ArtifactRow, BaselineRow, ReportData, SpeedUp, write_report
from benchmarks.report.headline import headline, headline_lines, undecided

PADDED, INT8 = "teacher-torch-fp32-padded-128", "teacher-onnx-int8"


def artifact(name: str, p50_ms: float | None, **changes) -> ArtifactRow:
    common = {"format": "onnx", "precision": "int8", "compute_precision": "int8", "size_mb": 10.0, "accuracy": 0.9}
    return ArtifactRow.model_validate({"name": name, "p50_ms": p50_ms, **common, **changes})


def speed_up(ratio: float, low: float, high: float, *, baseline: str = INT8, name: str = "good") -> SpeedUp:
    return SpeedUp(artifact=name, baseline=baseline, ratio=ratio, low=low, high=high)


def report(*artifacts: ArtifactRow, speed_ups: tuple[SpeedUp, ...] = (), **changes) -> ReportData:
    values = {
        "title": "t",
        "created": "c",
        "artifacts": artifacts or (artifact("good", 2.0),),
        "baselines": (
            BaselineRow(name=PADDED, runtime="torch 2.13", p50_ms=60.0, size_mb=90.0, accuracy=0.92),
            BaselineRow(name=INT8, runtime="onnxruntime 1.32", p50_ms=4.0, size_mb=23.0, accuracy=0.91),
        ),
        "speed_ups": speed_ups,
    }
    return ReportData.model_validate({**values, **changes})


DECIDED = (speed_up(2.0, 1.7, 2.4), speed_up(30.0, 26.0, 33.0, baseline=PADDED))


def test_the_fastest_baseline_comes_first_and_the_others_after_it() -> None:
    best = headline(report(speed_ups=DECIDED))
    assert best is not None
    assert [(item.baseline, item.times, item.is_fastest) for item in best.against] == [
        (INT8, 2.0, True),
        (PADDED, 30.0, False),
    ]
    assert [item.smaller for item in best.against] == [2.3, 9.0]
    assert best.against[0].points == pytest.approx(-1.0)


def test_the_sentence_names_the_fastest_baseline_and_the_interval() -> None:
    first, second = headline_lines(report(speed_ups=DECIDED))
    assert first == (
        f"good is 2.00 times faster at the median than {INT8}, the fastest baseline (95 % interval 1.70 to 2.40); "
        "2.30 times smaller; -1.0 points of accuracy."
    )
    assert f"30.0 times faster at the median than {PADDED} in torch 2.13" in second


def test_what_is_slower_or_larger_than_the_fastest_baseline_is_said_so() -> None:
    data = report(artifact("good", 8.0, size_mb=46.0), speed_ups=(speed_up(0.5, 0.4, 0.8),))
    (line,) = headline_lines(data)
    assert "2.00 times slower at the median" in line
    assert "95 % interval 1.25 to 2.50" in line
    assert "2.00 times larger" in line


@pytest.mark.parametrize("status", ["rejected", "over_budget", "inconclusive", "invalid", "failed"])
def test_an_artifact_that_is_not_proven_to_be_within_its_limits_is_passed_over(status: str) -> None:
    rows = (artifact("fast", 0.5, status=status), artifact("good", 2.0, status="pass"), artifact("unmeasured", None))
    data = report(*rows, speed_ups=(*DECIDED, speed_up(8.0, 7.0, 9.0, name="fast")))
    best = headline(data)
    assert best is not None
    assert best.artifact == "good"
    alone = report(artifact("fast", 0.5, status=status), speed_ups=(speed_up(8.0, 7.0, 9.0, name="fast"),))
    assert headline(alone) is None
    assert undecided(alone) == "no artifact that was measured is proven to be within its limits"


def test_no_speed_up_is_shown_where_the_interval_holds_no_difference() -> None:
    data = report(speed_ups=(speed_up(1.4, 0.9, 2.1), DECIDED[1]))
    assert headline(data) is None
    (line,) = headline_lines(data)
    assert "not decided" in line
    assert "0.900 to 2.10" in line


def test_a_slower_baseline_that_is_not_decided_is_left_out() -> None:
    best = headline(report(speed_ups=(DECIDED[0], speed_up(30.0, 0.8, 99.0, baseline=PADDED))))
    assert best is not None
    assert [item.baseline for item in best.against] == [INT8]


def test_too_few_processes_for_an_interval_show_no_speed_up() -> None:
    assert headline(report()) is None
    assert "at least 3 processes" in str(undecided(report()))


def test_invalid_times_show_no_speed_up() -> None:
    reason = "the hypervisor took 40% of the CPU time"
    data = report(artifact("good", 2.0, invalid_reason=reason), speed_ups=DECIDED)
    assert headline(data) is None
    assert undecided(data) == f"the times are invalid ({reason})"


def test_an_invalid_baseline_is_no_yardstick() -> None:
    rows = list(report().baselines)
    rows[1] = rows[1].model_copy(update={"invalid_reason": "the power mode changed"})
    best = headline(report(speed_ups=DECIDED, baselines=rows))
    assert best is not None
    assert [(item.baseline, item.is_fastest) for item in best.against] == [(PADDED, True)]


def test_nothing_is_said_where_nothing_was_measured() -> None:
    for data in (report(artifact("good", None)), report(baselines=())):
        assert headline(data) is None
        assert undecided(data) is None
        assert headline_lines(data) == []


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_both_texts_show_either_the_speed_up_or_why_there_is_none(tmp_path: Path, name: str) -> None:
    write_report(tmp_path, report(speed_ups=DECIDED))
    shown = (tmp_path / name).read_text(encoding="utf-8")
    assert "the fastest baseline" in shown
    assert "95 % interval 1.70 to 2.40" in shown
    write_report(tmp_path, report(artifact("good", 2.0, invalid_reason="memory ran out"), speed_ups=DECIDED))
    shown = (tmp_path / name).read_text(encoding="utf-8")
    assert "No speed-up is shown: the times are invalid (memory ran out)." in shown
    assert "faster" not in shown
    assert "times invalid" in shown
