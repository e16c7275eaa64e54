"""An ONNX model that takes the text itself."""

import json

import numpy as np
import onnx
import pytest

from compressor.app.bundling import bundle
from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, StageError, UsageError
from compressor.core.hashing import sha256_file
from compressor.text import SentenceEncoder
from export.build import export_artifacts
from export.onnx.predictor import OnnxPredictor
from export.onnx.raw_text import DOMAIN, TextSession
from export.onnx.text_bundle import TextBundle, write_text_bundle
from export.source import ExportRequest
from tests.models import SENTENCES, tiny_task_checkpoint

pytest.importorskip("onnxruntime_extensions", reason="the text extra is not installed")
TEXTS = (*SENTENCES, "Where IS my order?!", "please " * 40)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_text_gives_the_artifacts_answer_to_the_bit(onnx_artifacts, tmp_path, precision):
    artifact = Artifact.load(onnx_artifacts / f"onnx-{precision}")
    made = write_text_bundle(artifact, tmp_path / "app", texts=TEXTS)
    assert (made.checked_texts, made.other_answers) == (len(TEXTS), ())
    session = TextSession(tmp_path / "app" / "model.onnx")
    model = OnnxPredictor(artifact.model_path, threads=1)
    encoder = SentenceEncoder.load(artifact.path, max_tokens=artifact.io.max_tokens)
    for text, encoded in zip(TEXTS, encoder.encode(TEXTS), strict=True):
        np.testing.assert_array_equal(session.run(text)[0], model.logits(encoder.pad([encoded])))


def test_the_graph_takes_one_text_and_its_weights_are_the_artifacts(onnx_artifact, tmp_path):
    artifact = Artifact.load(onnx_artifact)
    write_text_bundle(artifact, tmp_path / "app", texts=TEXTS)
    graph, original = onnx.load(tmp_path / "app" / "model.onnx"), onnx.load(artifact.model_path)
    assert [(item.name, item.type.tensor_type.elem_type) for item in graph.graph.input] == [
        ("text", onnx.TensorProto.STRING)
    ]
    assert DOMAIN in {item.domain for item in graph.opset_import}
    weights = {item.name: item.raw_data for item in graph.graph.initializer}
    assert {item.name: item.raw_data for item in original.graph.initializer}.items() <= weights.items()
    Artifact.load(artifact.path)


def test_the_record_names_what_was_checked_and_every_file(onnx_artifact, tmp_path):
    artifact = Artifact.load(onnx_artifact)
    write_text_bundle(artifact, tmp_path / "app", texts=TEXTS)
    record = TextBundle.model_validate_json((tmp_path / "app" / "bundle.json").read_bytes())
    assert record.artifact == artifact.hash
    assert record.files == {
        name: sha256_file(tmp_path / "app" / name) for name in ("README.md", "labels.txt", "model.onnx")
    }
    assert any("[SEP]" in text for text in record.other_probes)  # a known difference: letters there, a token here
    card = (tmp_path / "app" / "README.md").read_text()
    assert f"On {len(TEXTS)} of {len(TEXTS)} sentences" in card
    assert '"logits"' in card
    assert "{{" not in card


def test_too_many_sentences_that_are_cut_otherwise_refuse_the_bundle(onnx_artifact, tmp_path):
    artifact = Artifact.load(onnx_artifact)
    odd = "an [SEP] order"
    with pytest.raises(StageError, match=r"1 of 8 sentences into other tokens .* 'an \[SEP\] order'"):
        write_text_bundle(artifact, tmp_path / "app", texts=(*TEXTS, odd))
    assert not (tmp_path / "app").exists()
    made = write_text_bundle(artifact, tmp_path / "app", texts=(*TEXTS * 20, odd))
    assert made.other_answers == (odd,)


def test_what_the_operator_does_not_serve_is_refused_with_the_reason(onnx_artifact, tmp_path):
    definition = json.loads((onnx_artifact / "tokenizer.json").read_text())
    cases = (
        ({**definition, "model": {**definition["model"], "type": "BPE"}}, "its tokenizer is BPE"),
        ({**definition, "pre_tokenizer": {"type": "Metaspace"}}, "does not split words"),
        ({**definition, "normalizer": None}, "does not clean texts"),
    )
    artifact = Artifact.load(onnx_artifact)
    for tokenizer, reason in cases:
        (onnx_artifact / "tokenizer.json").write_text(json.dumps(tokenizer))
        with pytest.raises(ArtifactError, match=reason):
            write_text_bundle(artifact, tmp_path / "app", texts=TEXTS)
    with pytest.raises(UsageError, match="mediapipe-length"):
        bundle(onnx_artifact.parent / "onnx-int8", tmp_path / "app", mediapipe_length=8)
    assert not (tmp_path / "app").exists()


def test_answers_that_stand_by_tokens_are_refused(tmp_path):
    checkpoint = tiny_task_checkpoint("token-classification", tmp_path / "checkpoint")
    request = ExportRequest(
        formats=("onnx",), precisions=("fp32",), lengths=(8, 16), parity_texts=SENTENCES, parity_source="test",
        name="tags",
    )  # fmt: skip
    (artifact,) = export_artifacts(checkpoint, request, tmp_path / "out").artifacts
    with pytest.raises(ArtifactError, match="token by token"):
        bundle(artifact.path, tmp_path / "app")


def test_pairs_are_no_sentences_to_check_a_bundle_on(onnx_artifact, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("text\ttext_pair\tlabel\na\tb\tcancel\n")
    with pytest.raises(UsageError, match="no single text"):
        bundle(onnx_artifact, tmp_path / "app", sentences=pairs)
    assert not (tmp_path / "app").exists()
