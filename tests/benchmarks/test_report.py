from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from benchmarks.report import ReportData, write_report
from benchmarks.report.plots import _thinned
from benchmarks.report.text import count, drop, duration, interval, moment, number, percent, points, small, smaller
from benchmarks.report.write import report_html
from tests.benchmarks.report_data import sample_report


class Page(HTMLParser):
    """Collects what a browser would load, the text, and tags that were opened and not closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [str(value) for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "data")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    assert [file.name for file in write_report(path, sample_report())] == ["report.md", "report.html", "report.json"]
    return path


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_loads_nothing(html: str) -> None:
    page = Page(html)
    assert all(load.startswith("#") for load in page.loads)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(page.tags)
    assert not re.search(r"@import|url\(\s*['\"]?(?!#)", html)
    without_namespaces = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.search(r"https?://", without_namespaces)


def test_the_page_is_well_formed_and_has_all_plots(html: str) -> None:
    page = Page(html)
    assert page.open == []
    assert page.tags.count("svg") == 4
    referred = set(re.findall(r"(?:url\(|href=\")#([^)\"]+)", html))
    defined = re.findall(r' id="([^"]+)"', html)
    assert referred
    assert all(defined.count(name) == 1 for name in referred)


@pytest.mark.parametrize("name", ["report.html", "report.md"])
@pytest.mark.parametrize(
    "shown",
    ["tflite-int8", "1.02", "1.63", "1.83", "18.3", "97.9 %", "99.6 %", "38.1", "22.7 M", "1 min 01 s", "3e-06", "200"],
)
def test_both_texts_show_the_numbers(folder: Path, name: str, shown: str) -> None:
    assert shown in (folder / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_what_the_times_are_not_is_said_plainly(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8").replace("&#39;", "'")
    assert "hold for this machine only" in text
    assert "Not run on hardware: snapdragon-865, jetson-orin-nano." in text
    assert "not run on hardware" in text
    assert "other work ran" in text


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_the_machine_is_described_with_units(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    assert "24 GB" in text
    assert "memory_gb" not in text
    assert "onnxruntime" in text


def test_no_tick_of_an_accuracy_is_above_all_of_it() -> None:
    rows = tuple(
        row.model_copy(update={"accuracy": 1.0 - 0.05 * index}) for index, row in enumerate(sample_report().artifacts)
    )
    page = report_html(sample_report().model_copy(update={"artifacts": rows, "baselines": ()}))
    plot = page[page.index("Accuracy against") : page.index("Size of the model files")]
    ticks = [float(text) for text in re.findall(r">(\d+(?:\.\d+)?)<", plot)]
    assert 100.0 in ticks
    assert not [tick for tick in ticks if tick > 100]


def test_text_from_outside_cannot_become_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>|x"
    data = sample_report()
    row = data.artifacts[0].model_copy(update={"name": evil})
    data = data.model_copy(update={"title": evil, "artifacts": (row,), "notes": (evil,)})
    write_report(tmp_path, data)
    assert "<script" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    rows = [
        line for line in (tmp_path / "report.md").read_text(encoding="utf-8").splitlines() if line.startswith("| <")
    ]
    assert rows
    assert all("\\|x" in line for line in rows)


def test_the_json_is_the_data(folder: Path) -> None:
    assert (
        ReportData.model_validate(json.loads((folder / "report.json").read_text(encoding="utf-8"))) == sample_report()
    )


def test_the_same_data_give_the_same_page(tmp_path: Path, html: str) -> None:
    write_report(tmp_path, sample_report())
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == html


def test_an_almost_empty_report_is_written_too(tmp_path: Path) -> None:
    write_report(tmp_path, ReportData(title="Nothing yet", created="2026-01-31", not_run=()))
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Nothing yet" in html
    assert "<svg" not in html


def test_figures_are_written_to_be_read() -> None:
    assert [number(value) for value in (None, 0.0456, 1.234, 12.34, 1234.5)] == ["-", "0.046", "1.23", "12.3", "1,234"]
    assert (percent(0.98765), percent(None)) == ("98.8 %", "-")
    assert (points(-0.71), points(0.3), points(0.01)) == ("-0.7", "+0.3", "0.0")
    assert (drop(0.71), drop(-0.3), drop(-0.01)) == ("0.7", "-0.3", "0.0")
    assert small(3.21e-6) == "3e-06"
    assert (smaller(5.17), smaller(0.5)) == ("5.17 times smaller", "2.00 times larger")
    assert interval(0.9, 12.34) == "95 % interval 0.900 to 12.3"
    assert (moment("2026-01-31T12:00:41+02:00"), moment("today")) == ("2026-01-31 10:00 UTC", "today")
    assert [count(value) for value in (None, 12, 4_500, 22_716_295)] == ["-", "12", "4.5 k", "22.7 M"]
    assert (duration(3.44), duration(61.2)) == ("3.4 s", "1 min 01 s")


@pytest.mark.parametrize("steps", [1, 399, 400, 401, 12345])
def test_long_curves_are_drawn_by_block_means_from_the_first_step_to_the_last(steps: int) -> None:
    places, values = _thinned([float(step) for step in range(1, steps + 1)])
    assert len(places) == len(values) <= 400
    assert values == pytest.approx(places), "a block's mean stands elsewhere than in its middle"
    assert places[0] <= 1 + steps / 400
    assert places[-1] >= steps - steps / 400
    if steps <= 400:
        assert places == list(range(1, steps + 1))


def test_a_curve_has_a_gap_where_its_loss_did_not_count() -> None:
    places, values = _thinned([None, None, 4.0, 2.0])
    assert places == [1, 2, 3, 4]
    assert [math.isnan(value) for value in values] == [True, True, False, False]
    _, values = _thinned([4.0, None] * 400)
    assert values == [4.0] * 400, "a block's mean counts what is missing"
