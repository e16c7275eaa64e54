import pytest

from compressor.core.wording import paragraphs, plain, reading, step, threads


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("memory_gb", "25", ("memory", "25 GB")),
        ("memory_available_mb", 24284.724, ("memory available", "24,285 MB")),
        ("frequency_mhz", 2445.406, ("clock", "2,445 MHz")),
        ("load_average", 1.3916015, ("load average, 1 minute", "1.39")),
        ("stolen_s", 0.0, ("taken by the hypervisor so far", "0 s")),
        ("screen_on", True, ("screen on", "true")),
        ("cores", 2, ("cores", "2")),
        ("temperatures_c", {"cpu": 41.5}, ("temperatures", "{cpu: 41.5}")),
    ],
)
def test_a_reading_has_words_for_a_name_and_its_unit_after_the_figure(name, value, shown):
    assert reading(name, value) == shown


def test_values_are_written_as_in_a_recipe():
    student = {"init": "copy", "layers": 3, "pooler": None}
    assert plain(student) == "{init: copy, layers: 3, pooler: null}"
    assert plain([{"name": "logits", "temperature": 2.0}]) == "[{name: logits, temperature: 2}]"
    assert (plain(True), plain(3e-4), plain(128), plain(22_713_986)) == ("true", "0.0003", "128", "22,713,986")


def test_a_stage_of_the_history_reads_as_a_line():
    facts = {"stage": "distill", "layers_copied": [1, 3], "parameters": {"before": 22_713_986, "after": 17_390_594}}
    assert step(facts) == "distill: layers copied [1, 3]; parameters 22,713,986 → 17,390,594"
    assert step({"stage": "share"}) == "share"


def test_plurals_and_paragraphs():
    assert (threads(1), threads(2)) == ("1 thread", "2 threads")
    assert paragraphs({"a": "x", "b": "y"}) == "a: x\nb: y"
