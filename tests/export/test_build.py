import json
from dataclasses import replace

import numpy as np
import pytest

import export.candidate
from compressor.core.artifact import Artifact
from compressor.core.errors import AcceptanceError, ModelError, ParityError, UsageError
from compressor.data.dataset import Split
from compressor.quantize.plan import QuantizationPlan
from export.backend import backend_for
from export.build import export_artifacts
from export.cache import ConversionCache
from export.source import ExportRequest
from export.tensorrt.backend import TensorRTBackend
from export.text_predictor import TextPredictor
from tests.models import SENTENCES, keyword_split

SPLIT = keyword_split(60, seed=2)


def request(**changes):
    base = ExportRequest(
        formats=("onnx",), precisions=("fp32",), lengths=(8, 16), parity_texts=SENTENCES, parity_source="test", name="t"
    )
    return replace(base, **changes)


def test_each_precision_is_proven_and_says_what_it_holds(onnx_artifacts):
    for precision in ("fp32", "fp16", "int8"):
        artifact = Artifact.load(onnx_artifacts / f"onnx-{precision}")
        assert artifact.manifest.precision == precision
        parity = json.loads((artifact.path / "parity.json").read_text())
        assert parity["finite"]
        assert parity["repeatable"]
        assert [entry["length"] for entry in parity["lengths"]] == [8, 16]
    sizes = [Artifact.load(onnx_artifacts / f"onnx-{name}").size_mb for name in ("fp32", "fp16", "int8")]
    assert sizes[0] > sizes[1] > sizes[2]


def test_the_card_states_the_figures_of_the_manifest(onnx_artifact):
    card = (onnx_artifact / "README.md").read_text()
    artifact = Artifact.load(onnx_artifact)
    assert f"{artifact.size_mb:.2f} MB" in card
    assert "`input_ids` int64" in card
    assert artifact.manifest.source["checkpoint"][:16] in card


def test_metrics_of_teacher_checkpoint_and_file_are_kept(trained, tmp_path):
    (artifact,) = export_artifacts(trained, request(selection=SPLIT, report=SPLIT), tmp_path / "out").artifacts
    reference = artifact.manifest.reference
    assert reference["checkpoint"] == reference["artifact"] > 0.9
    assert reference["examples"] == 60


def test_a_reference_at_chance_is_refused(trained, tmp_path):
    wrong = Split(SPLIT.texts, tuple((label + 1) % 3 for label in SPLIT.labels))
    with pytest.raises(ModelError, match="most frequent label"):
        export_artifacts(trained, request(selection=wrong), tmp_path / "out")
    assert not list(tmp_path.glob("out/onnx-*"))


def _answering_wrong(monkeypatch, *bad):
    """Makes files of the given precisions answer the next label: what a lost task looks like from outside."""
    real = export.candidate.Candidate.score

    def score(self, split):
        if self.precision in bad:
            split = Split(split.texts, tuple((label + 1) % 3 for label in split.labels))
        return real(self, split)

    monkeypatch.setattr(export.candidate.Candidate, "score", score)


def test_int8_that_loses_the_task_falls_back_and_every_attempt_is_kept(trained, tmp_path, monkeypatch):
    _answering_wrong(monkeypatch, "int8", "mixed")
    plan = QuantizationPlan(max_drop_points=0.5)
    made = export_artifacts(trained, request(precisions=("int8",), plan=plan, selection=SPLIT), tmp_path)
    (artifact,) = made.artifacts
    assert not any(attempt.accepted for attempt in made.refused)
    assert artifact.name == "onnx-fp16"
    assert backend_for("onnx").inspect(artifact.model_path).precision == "fp16"
    attempts = artifact.manifest.attempts
    assert [(attempt["rung"], attempt["accepted"]) for attempt in attempts] == [
        ("onnx int8 dynamic", False), ("onnx int8 mixed on dynamic, 1 in fp16", False),
        ("onnx int8 mixed on dynamic, 2 in fp16", False), ("onnx int8 mixed on dynamic, 4 in fp16", False),
        ("onnx int8 static", False), ("onnx fp16", True),
    ]  # fmt: skip
    assert attempts[0]["drop_points"] > 50
    assert "none was given" in attempts[4]["reason"]
    assert not (tmp_path / "onnx-int8").exists()


def test_where_no_precision_holds_nothing_is_written(trained, tmp_path, monkeypatch):
    _answering_wrong(monkeypatch, "int8", "mixed", "fp16")
    plan = QuantizationPlan(max_drop_points=0.5)
    with pytest.raises(AcceptanceError, match="no onnx file of int8 or a safer precision") as caught:
        export_artifacts(trained, request(precisions=("int8",), plan=plan, selection=SPLIT), tmp_path)
    assert caught.value.exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_gives_nan_is_refused(checkpoint_of, tmp_path, monkeypatch):
    from export.onnx.predictor import OnnxPredictor

    real = OnnxPredictor.run
    monkeypatch.setattr(OnnxPredictor, "run", lambda self, batch: {"logits": real(self, batch)["logits"] * np.nan})
    with pytest.raises(ParityError, match="NaN"):
        export_artifacts(checkpoint_of("bert"), request(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("lengths", [(), (2,), (8, 65)])
def test_lengths_the_model_cannot_take_are_refused(checkpoint_of, tmp_path, lengths):
    with pytest.raises(UsageError, match="from 3 to 64"):
        export_artifacts(checkpoint_of("bert"), request(lengths=lengths), tmp_path)


def test_a_precision_the_format_does_not_have_is_refused(checkpoint_of, tmp_path, monkeypatch):
    monkeypatch.setattr(TensorRTBackend, "offers", lambda self, precision: precision != "int8")
    with pytest.raises(UsageError, match="tensorrt cannot be made in int8"):
        export_artifacts(checkpoint_of("bert"), request(formats=("tensorrt",), precisions=("int8",)), tmp_path)


def test_what_a_killed_export_finished_is_kept(checkpoint_of, tmp_path, monkeypatch):
    (first,) = export_artifacts(checkpoint_of("bert"), request(), tmp_path).artifacts
    before = first.model_path.stat().st_mtime_ns
    again = export_artifacts(checkpoint_of("bert"), request(precisions=("fp32", "fp16")), tmp_path).artifacts
    assert [artifact.name for artifact in again] == ["onnx-fp32", "onnx-fp16"]
    assert again[0].model_path.stat().st_mtime_ns == before


def test_sentences_shared_out_among_predictors_come_back_in_order(onnx_artifact):
    one = TextPredictor.load(Artifact.load(onnx_artifact), threads=1)
    three = TextPredictor.load(Artifact.load(onnx_artifact), threads=3)
    assert len(three.predictors) == 3
    np.testing.assert_array_equal(one.run(SPLIT.texts).logits, three.run(SPLIT.texts).logits)


def test_formats_made_side_by_side_are_those_made_one_after_the_other(checkpoint_of, tmp_path):
    notes = []
    wanted = request(formats=("onnx", "tensorrt"), precisions=("fp32", "fp16"))
    one = export_artifacts(checkpoint_of("bert"), wanted, tmp_path / "one").artifacts
    both = export_artifacts(
        checkpoint_of("bert"), replace(wanted, threads=2), tmp_path / "both",
        progress=lambda done, total, note: notes.append((done, total, note)),
    ).artifacts  # fmt: skip
    assert [a.name for a in both] == [a.name for a in one]
    assert [a.manifest.files[a.manifest.model_file] for a in both] == [
        a.manifest.files[a.manifest.model_file] for a in one
    ]
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == sorted(a.name for a in both)
    assert notes[-1] == (4, 4, "exported")
    assert {note for _, _, note in notes[:-1]} == {"onnx fp32", "onnx fp16", "tensorrt fp32", "tensorrt fp16"}


def test_when_one_format_fails_beside_another_nothing_is_half_written(checkpoint_of, tmp_path):
    bad = QuantizationPlan(policy=({"pattern": "*", "precision": "int8"}, {"pattern": "nothing", "precision": "fp32"}))
    wanted = request(formats=("onnx", "tensorrt"), precisions=("fp16",), plan=bad, threads=2)
    with pytest.raises(UsageError, match="nothing"):
        export_artifacts(checkpoint_of("bert"), wanted, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_is_taken_from_the_cache_and_proven_again(checkpoint_of, tmp_path, monkeypatch):
    from export.onnx.backend import OnnxBackend

    cache = ConversionCache(tmp_path / "cache")
    (first,) = export_artifacts(checkpoint_of("bert"), request(), tmp_path / "first", cache=cache).artifacts
    proven = []
    real = export.candidate.require_parity
    monkeypatch.setattr(OnnxBackend, "convert", lambda *args: pytest.fail("converted again"))
    monkeypatch.setattr(export.candidate, "require_parity", lambda *args: (proven.append(args), real(*args)))
    wanted = request(precisions=("fp32", "fp16"))
    again = export_artifacts(checkpoint_of("bert"), wanted, tmp_path / "again", cache=cache).artifacts
    assert again[0].manifest.files["model.onnx"] == first.manifest.files["model.onnx"]
    assert len(proven) == 3


def test_what_is_not_proven_is_not_kept(checkpoint_of, tmp_path, monkeypatch):
    monkeypatch.setattr(export.candidate, "require_parity", _off)
    with pytest.raises(ParityError):
        export_artifacts(checkpoint_of("bert"), request(), tmp_path / "out", cache=ConversionCache(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def _off(parity, name):
    raise ParityError("off", remedy="none")
