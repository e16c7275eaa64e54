"""P10: a conversion can lose the task while every tool succeeds; so the file is asked, and refused if it lost."""

import pytest

from compressor.core.errors import AcceptanceError
from compressor.quantize.plan import QuantizationPlan
from export.build import export_artifacts
from export.source import ExportRequest
from export.tflite import reduce
from export.tflite.compact import pack
from export.tflite.flatbuffer import parse, type_names, weight_uses
from tests.models import SENTENCES, keyword_split

SPLIT = keyword_split(40, seed=2)
REQUEST = ExportRequest(
    formats=("tflite",), precisions=("int8",), lengths=(16,), parity_texts=SENTENCES, parity_source="test", name="t",
    plan=QuantizationPlan(max_drop_points=1.0), selection=SPLIT, report=SPLIT,
)  # fmt: skip


def _breaking(monkeypatch, damage):
    """Lets the quantiser succeed and then damages what it wrote, as a wrong kernel or a wrong layout would."""
    real = reduce._quantize

    def quantize(content, statistics):
        made = parse(real(content, statistics))
        for buffer in {use.buffer for use in weight_uses(made) if type_names()[use.tensor.type] == "int8"}:
            made.buffers[buffer].data = damage(made.buffers[buffer].data)
        return pack(made)

    monkeypatch.setattr(reduce, "_quantize", quantize)


def test_a_lost_task_is_seen_in_the_file_and_a_sound_one_is_found(trained, tmp_path, monkeypatch):
    _breaking(monkeypatch, lambda data: data[::-1].copy())
    (artifact,) = export_artifacts(trained, REQUEST, tmp_path).artifacts
    assert artifact.manifest.precision == "fp16"
    assert artifact.name == "tflite-fp16"
    attempts = artifact.manifest.attempts
    assert [attempt["accepted"] for attempt in attempts] == [False] * (len(attempts) - 1) + [True]
    assert attempts[0]["rung"] == "tflite int8 dynamic"
    assert artifact.manifest.reference["artifact"] >= artifact.manifest.reference["checkpoint"] - 0.01


def test_where_nothing_holds_nothing_is_written(trained, tmp_path, monkeypatch):
    _breaking(monkeypatch, lambda data: data[::-1].copy())
    monkeypatch.setattr(reduce, "store_half", lambda model, uses: _negate(model))
    with pytest.raises(AcceptanceError) as caught:
        export_artifacts(trained, REQUEST, tmp_path)
    assert caught.value.exit_code == 1
    assert not list(tmp_path.iterdir())


def _negate(model):
    """Stores the half-precision weights with the wrong sign."""
    from export.tflite.half import store_half

    uses = [(use, "") for use in weight_uses(model)]
    for use in uses:
        data = model.buffers[use[0].buffer].data
        if type_names()[use[0].tensor.type] == "float32":
            model.buffers[use[0].buffer].data = (-data.view("float32")).view("uint8")
    store_half(model, uses)
