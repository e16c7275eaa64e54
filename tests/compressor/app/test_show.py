import io

import pytest
from rich.console import Console

from benchmarks.trend import series_of
from compressor.app import console, show
from compressor.app.inspection import Inspection
from compressor.app.judge import Comparison
from compressor.core.verdict import Check, Verdict
from export.tflite.delegates import DelegateReport, Refusal
from tests.benchmarks.report_data import sample_report
from tests.benchmarks.test_history import entries


@pytest.fixture
def shown_at(monkeypatch):
    """Returns what a function of ``show`` writes on a terminal of some width."""

    def shown(width, function, *values):
        stream = io.StringIO()
        monkeypatch.setattr(console, "stdout", Console(file=stream, width=width, markup=False, highlight=False))
        function(*values)
        return stream.getvalue()

    return shown


def inspection(**changes):
    values = {
        "path": "model", "format": "tflite", "precision": "int8", "size_bytes": 18_000_000,
        "unique_parameter_bytes": 17_600_000, "parameters": 17_288_076, "lengths": (), "operators": {"ADD": 3},
        "gemm_types": {"int8": 80},
    }  # fmt: skip
    return Inspection.model_validate({**values, **changes})


def delegate(device):
    return DelegateReport(
        device=device, delegate="gpu", title="GPU delegate (OpenCL, OpenGL)", source="", operators=198, taken=192,
        partitions=7, refusals=(Refusal(operator="ADD", count=6, reason="inputs do not broadcast"),), dynamic_tensors=0,
    )  # fmt: skip


PHONES = ("snapdragon-865", "snapdragon-8gen1", "snapdragon-8gen2", "snapdragon-8gen3", "snapdragon-8elite-gen5")


def test_delegates_leave_the_values_their_room_on_80_columns(shown_at):
    text = shown_at(80, show.inspection, inspection(delegates=tuple(map(delegate, PHONES))))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert min(line.index(word) for word in ("int8 (80", "17,288,076") for line in lines if word in line) < 30
    words = " ".join(text.split())
    for device in PHONES:
        assert device in words
    assert "takes 192 of 198 operators, 7 partitions; refuses 6 ADD" in words


def test_two_files_side_by_side_show_what_each_delegate_takes(shown_at):
    left, right = inspection(format="onnx"), inspection(delegates=(delegate("pixel-4"),))
    words = " ".join(shown_at(120, show.comparison, Comparison(left=left, right=right)).split())
    assert "GPU delegate (OpenCL, OpenGL): takes 192 of 198" in words
    assert "refuses" not in words


def test_every_stage_that_made_a_checkpoint_is_shown_in_both_views(shown_at):
    history = ({"stage": "finetune", "lr": 1e-4}, {"stage": "distill", "losses": ["hidden", "logits"]})
    made = inspection(history=history)
    for text in (
        shown_at(120, show.inspection, made),
        shown_at(120, show.comparison, Comparison(left=made, right=made)),
    ):
        assert "finetune: lr 0.0001" in text
        assert "distill: losses [hidden, logits]" in text
        assert "'" not in text


@pytest.mark.parametrize(
    ("lengths", "most", "words"),
    [((16, 32), 128, "16, 32"), ((), 128, "any up to 128 tokens"), ((), None, "any")],
)
def test_lengths_name_the_limit_where_it_is_known(shown_at, lengths, most, words):
    text = shown_at(120, show.inspection, inspection(lengths=lengths, max_tokens=most))
    (line,) = [line for line in text.splitlines() if line.startswith("lengths")]
    assert line.removeprefix("lengths").strip() == words


def test_a_narrow_verdict_keeps_every_name_and_tells_why_something_did_not_pass(shown_at):
    common = {"device": "host", "artifact": "tensorrt-fp16", "budget": 1.0, "value": 2.0}
    checks = (
        Check(name="accuracy_drop_points", verdict="pass", detail="against the teacher", **common),
        Check(name="p95_ms", verdict="inconclusive", detail="0 of 20 runs over", **common),
    )
    narrow = shown_at(80, show.verdict, Verdict.of(checks))
    assert "accuracy_drop_points" in narrow
    assert "…" not in narrow
    assert "tensorrt-fp16 on host, p95_ms is inconclusive: 0 of 20 runs over" in " ".join(narrow.split())
    assert "verdict: inconclusive" in narrow
    wide = shown_at(120, show.verdict, Verdict.of(checks))
    assert "against the teacher" in wide


def test_nothing_is_cut_off_a_narrow_table(shown_at):
    text = shown_at(40, console.table, ("name", ">ms"), [("teacher-torch-fp32-padded-128-and-more-words", 1.5)])
    assert "…" not in text
    assert (
        "".join(text.split()).replace("namems", "").replace("1.5", "") == "teacher-torch-fp32-padded-128-and-more-words"
    )


def test_a_run_on_a_terminal_names_the_metric_and_the_fastest_baseline(shown_at, tmp_path):
    from compressor.app.runs import RunOutcome

    report = sample_report().model_copy(update={"metric_name": "macro F1"})
    text = shown_at(120, show.run, RunOutcome(tmp_path, None, report, Verdict.of(report.checks)))
    words = " ".join(text.split())
    assert "macro F1 %" in words
    assert "tflite-int8 is 3.33 times faster at the median than teacher-onnx-int8, the fastest baseline" in words
    assert "not run on hardware" in words


def test_a_history_is_told_in_words(shown_at):
    (series,) = series_of(entries([1.0]))
    entry = series.entries[0].model_copy(update={"verdict": "over_budget", "commit_id": ""})
    text = shown_at(80, show.history, [series.model_copy(update={"entries": (entry,)})])
    assert "2026-01-01 00:00 UTC" in text
    assert "over budget" in text
    assert "onnxruntime 0.0, 1 thread, test" in text
