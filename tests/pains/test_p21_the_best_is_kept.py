"""P21: a search that keeps its last try, or that never measured the untouched model, ships something slower.

Candidates are ranked by a measured time, the untouched file among them, and the fastest within the limit is taken.
"""

import pytest

from compressor.quantize.plan import QuantizationPlan
from export.build import export_artifacts
from export.source import ExportRequest
from tests.models import SENTENCES, keyword_split

SPLIT = keyword_split(40, seed=2)


def export(trained, folder, times):
    """Exports with a stopwatch that gives each precision a time; files are told apart by what is found in them."""
    request = ExportRequest(
        formats=("onnx",), precisions=("int8",), lengths=(16,), parity_texts=SENTENCES, parity_source="test", name="t",
        plan=QuantizationPlan(max_drop_points=1.0), selection=SPLIT, report=SPLIT, calibration_texts=SENTENCES,
        ladder=("int8-dynamic", "fp16", "fp32"), measure=lambda artifact: times[artifact.manifest.precision],
    )  # fmt: skip
    (artifact,) = export_artifacts(trained, request, folder).artifacts
    return artifact


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({"int8": 1.0, "fp16": 2.0, "fp32": 3.0}, "int8"),
        ({"int8": 3.0, "fp16": 1.0, "fp32": 2.0}, "fp16"),
        # Quantising everything made it slower: the untouched model is the answer, and is called what it is.
        ({"int8": 232.0, "fp16": 30.0, "fp32": 12.0}, "fp32"),
    ],
)
def test_the_fastest_within_the_limit_is_taken_wherever_it_stood(trained, tmp_path, times, best):
    artifact = export(trained, tmp_path, times)
    assert artifact.name == f"onnx-{best}"
    assert artifact.manifest.precision == best
    assert [path.name for path in tmp_path.iterdir()] == [artifact.name]


def test_every_candidates_time_and_calibration_error_are_told(trained, tmp_path):
    attempts = export(trained, tmp_path, {"int8": 3.0, "fp16": 1.0, "fp32": 2.0}).manifest.attempts
    assert [(attempt["rung"], attempt["p95_ms"]) for attempt in attempts] == [
        ("onnx int8 dynamic", 3.0), ("onnx fp16", 1.0), ("onnx fp32", 2.0),
    ]  # fmt: skip
    assert all(0 <= attempt["expected_calibration_error"] < 0.5 for attempt in attempts[:2])
