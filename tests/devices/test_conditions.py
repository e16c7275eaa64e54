from __future__ import annotations

from pathlib import Path

import pytest

from devices.conditions import Conditions, judge
from devices.readings import host
from devices.readings.host import host_conditions


def reading(clock_s: float, **changes) -> Conditions:
    return Conditions(clock_s=clock_s, cores=2, **changes)


def test_the_host_reads_itself_and_is_measurable() -> None:
    before, after = host_conditions(), host_conditions()
    assert after.clock_s >= before.clock_s
    assert before.cores >= 1
    assert before.memory_available_mb is not None
    Conditions.model_validate_json(before.model_dump_json())


def test_the_host_tells_its_kinds_of_cores_and_their_limits(tmp_path: Path, monkeypatch) -> None:
    for number, (top, limit) in enumerate([(5000000, 3000000), (5000000, 3000000), (3800000, 3800000)]):
        policy = tmp_path / f"cpufreq/policy{number}"
        policy.mkdir(parents=True)
        values = {
            "related_cpus": number,
            "scaling_governor": "powersave",
            "scaling_max_freq": limit,
            "cpuinfo_max_freq": top,
        }
        for name, value in values.items():
            (policy / name).write_text(f"{value}\n", encoding="utf-8")
    monkeypatch.setattr(host, "_CPU", tmp_path)
    found = host_conditions()
    assert [(it.cpus, it.top_mhz, it.limit_mhz) for it in found.clusters] == [
        ("0", 5000.0, 3000.0), ("1", 5000.0, 3000.0), ("2", 3800.0, 3800.0),
    ]  # fmt: skip
    notes = judge(found, found, threads=1).notes
    assert "cores 0, 1: limited to 3000 of 5000 MHz" in notes
    assert "cores 0, 1, 2: governor 'powersave'" in notes


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"throttled_s": 1.0}, {"throttled_s": 2.0}, "CPU limit stopped"),
        ({}, {"cpu_limit": 0.5}, "0.50 cores"),
        ({"stolen_s": 0.0}, {"stolen_s": 8.0}, "hypervisor took 40%"),
        ({"memory_available_mb": 900.0}, {"memory_available_mb": 20.0}, "20 MB"),
        ({"load_average": 40.0}, {"load_average": 36.0}, "18 tasks per core"),
    ],
)
def test_extreme_conditions_invalidate(before: dict[str, float], after: dict[str, float], said: str) -> None:
    found = judge(reading(0.0, **before), reading(10.0, **after), threads=1)
    assert found.invalid_reason is not None
    assert said in found.invalid_reason


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ({"load_average": 5.0}, {"load_average": 4.0}, "load average 5.0"),
        ({"load_average": 0.0}, {"load_average": 40.0}, None),
        ({"stolen_s": 0.0}, {"stolen_s": 1.0}, "hypervisor"),
        ({}, {"governor": "powersave"}, "powersave"),
        ({}, {"turbo": True}, "turbo"),
        ({"frequency_mhz": 3000.0}, {"frequency_mhz": 1500.0}, "clock fell"),
        ({"throttled_s": 1.0}, {"throttled_s": 1.1}, None),
        ({}, {"cpu_limit": 1.0}, None),
        ({}, {}, None),
    ],
)
def test_a_busy_or_unknown_machine_stays_measurable(before: dict, after: dict, note: str | None) -> None:
    found = judge(reading(0.0, **before), reading(10.0, **after), threads=1)
    assert found.invalid_reason is None
    if note is not None:
        assert any(note in text for text in found.notes)


def test_more_threads_than_cores_is_noted() -> None:
    assert "4 threads on 2 cores" in judge(reading(0.0), reading(1.0), threads=4).notes
