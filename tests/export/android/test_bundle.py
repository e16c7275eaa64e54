import json
import unicodedata
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, FolderError, UsageError
from compressor.core.hashing import sha256_file
from compressor.tasks.metrics import softmax
from compressor.text import SentenceEncoder
from export.android.bundle import Bundle, write_bundle
from export.android.mediapipe import mediapipe_model, refusal
from export.android.tokenization import describe
from export.build import export_artifacts
from export.source import ExportRequest
from export.text_predictor import TextPredictor
from export.tflite.flatbuffer import IDENTIFIER, read
from tests.models import SENTENCES

pytest.importorskip("litert_torch", reason="the tflite extra is not installed")
REQUEST = ExportRequest(
    formats=("tflite",),
    precisions=("int8",),
    lengths=(8, 16),
    parity_texts=SENTENCES,
    parity_source="test",
    name="tiny",
)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory, checkpoint_of):
    folder = tmp_path_factory.mktemp("android")
    made = {}
    for family in ("bert", "distilbert"):
        (made[family],) = export_artifacts(
            checkpoint_of(family), replace(REQUEST, name=family), folder / family
        ).artifacts
    return made


@pytest.fixture(scope="module")
def bundle(artifacts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundle") / "app"
    write_bundle(artifacts["bert"], folder, texts=("a text of mine",))
    return folder


def test_the_model_is_the_artifacts_file_byte_for_byte(artifacts, bundle):
    artifact = artifacts["bert"]
    assert (bundle / "model.tflite").read_bytes() == artifact.model_path.read_bytes()
    Artifact.load(artifact.path)
    record = Bundle.model_validate_json((bundle / "bundle.json").read_bytes())
    assert record.artifact == artifact.hash
    assert record.files == {
        path.relative_to(bundle).as_posix(): sha256_file(path)
        for path in sorted(bundle.rglob("*"))
        if path.is_file() and path.name not in ("bundle.json", ".compressor.json")
    }


def test_kotlin_names_what_the_file_names(artifacts, bundle):
    source = (bundle / "TextClassifier.kt").read_text()
    for signature in artifacts["bert"].io.signatures:
        assert f'{signature.length} to "{signature.key}"' in source
        for own in signature.roles.values():
            assert f'"{own}" to arrayOf(IntArray' in source
    assert source.count("{") == source.count("}")
    assert "{%" not in source


def test_test_vectors_are_the_artifacts_tokenizers(artifacts, bundle):
    document = json.loads((bundle / "tokenizer_vectors.json").read_text())
    encoder = SentenceEncoder.load(artifacts["bert"].path, max_tokens=16)
    assert document["cases"][-1]["text"] == "a text of mine"
    assert any(case["truncated"] for case in document["cases"])
    for case in document["cases"]:
        (encoded,) = encoder.encode([case["text"]])
        assert list(encoded.ids) == case["input_ids"][: len(encoded)]
        assert sum(case["attention_mask"]) == len(encoded)
        assert len(case["input_ids"]) == case["length"]


def by_the_book(text: str, pieces: list[str], most: int) -> list[str]:
    """WordPiece as TOKENIZATION.md says it, from nothing but the words there (special tokens in a text apart)."""
    kept = [
        c for c in text if c in "\t\n\r" or (c not in "\0\ufffd" and unicodedata.category(c) not in ("Cc", "Cf", "Co"))
    ]
    spaced = "".join(f" {c} " if "\u4e00" <= c <= "\u9fff" else " " if c.isspace() else c for c in kept)
    bare = "".join(c for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn").lower()
    ascii_marks = {chr(n) for first, last in ((33, 47), (58, 64), (91, 96), (123, 126)) for n in range(first, last + 1)}
    marked = "".join(f" {c} " if c in ascii_marks or unicodedata.category(c).startswith("P") else c for c in bare)
    tokens = []
    for word in marked.split():
        parts, start = [], 0
        while start < len(word) <= 100:
            ends = range(len(word), start, -1)
            part = next((p for end in ends if (p := ("##" if start else "") + word[start:end]) in pieces), None)
            if part is None:
                parts = []
                break
            parts.append(part)
            start += len(part) - (2 if start else 0)
        tokens += parts or ["[UNK]"]
    return ["[CLS]", *tokens[: most - 2], "[SEP]"]


def test_the_description_suffices_to_write_the_tokenizer(bundle):
    document = json.loads((bundle / "tokenizer_vectors.json").read_text())
    pieces = (bundle / "vocab.txt").read_text().splitlines()
    for case in document["cases"]:
        if not any(special in case["text"] for special in ("[SEP]", "[MASK]")):
            assert by_the_book(case["text"], pieces, document["max_tokens"]) == case["tokens"], case["text"]


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_mediapipes_file_gives_our_scores_at_its_length(artifacts, tmp_path, family):
    """MediaPipe feeds three inputs and shows the output as it is; here LiteRT does the same with the first graph."""
    from ai_edge_litert.interpreter import Interpreter

    artifact = artifacts[family]
    record = write_bundle(artifact, tmp_path / "app")
    assert record.mediapipe_file == "mediapipe/text_classifier_16.tflite"
    path = tmp_path / "app" / record.mediapipe_file
    assert path.stat().st_size < artifact.model_path.stat().st_size + 4096
    model = read(path)
    assert len(model.subgraphs) == len(model.signatureDefs) == 1
    assert len(model.subgraphs[0].inputs) == 3
    runner = Interpreter(str(path)).get_signature_runner("seq_16")
    predictor = TextPredictor.load(artifact)
    for text in SENTENCES[:3]:
        batch = predictor.encoder.pad(predictor.encoder.encode([text]), 16)
        ours = softmax(predictor.predictors[0].logits(batch))
        found = runner(**{name: rows.astype(np.int32) for name, rows in batch.items()})["scores"]
        np.testing.assert_allclose(found, ours, atol=1e-6)


def test_metadata_names_the_inputs_and_the_files_follow_the_model(artifacts, bundle):
    path = bundle / "mediapipe" / "text_classifier_16.tflite"
    assert path.read_bytes()[4:8] == IDENTIFIER
    with zipfile.ZipFile(path) as archive:
        assert all(item.compress_type == zipfile.ZIP_STORED for item in archive.infolist())
        assert archive.read("labels.txt").decode().splitlines() == list(artifacts["bert"].labels)
        assert archive.read("vocab.txt") == (bundle / "vocab.txt").read_bytes()
    model = read(path)
    (entry,) = (item for item in model.metadata if item.name == b"TFLITE_METADATA")
    metadata = bytes(model.buffers[entry.buffer].data)
    assert metadata[4:8] == b"M001"
    for name in (b"ids", b"mask", b"segment_ids", b"vocab.txt", b"labels.txt"):
        assert name in metadata


def test_the_same_artifact_gives_the_same_bytes(artifacts, bundle, tmp_path):
    write_bundle(artifacts["bert"], tmp_path / "again", texts=("a text of mine",))
    for name in ("mediapipe/text_classifier_16.tflite", "bundle.json"):
        assert (tmp_path / "again" / name).read_bytes() == (bundle / name).read_bytes()


def test_another_length_can_be_chosen_for_mediapipe(artifacts, tmp_path):
    record = write_bundle(artifacts["bert"], tmp_path / "app", mediapipe_length=8)
    assert record.mediapipe_file == "mediapipe/text_classifier_8.tflite"
    with pytest.raises(UsageError, match="8, 16"):
        write_bundle(artifacts["bert"], tmp_path / "other", mediapipe_length=9)
    assert not (tmp_path / "other").exists()


def test_a_multi_label_head_ends_in_a_sigmoid(artifacts):
    artifact = artifacts["bert"]
    content = mediapipe_model(
        read(artifact.model_path), artifact.io.signatures[0], vocabulary=["[PAD]"], labels=artifact.labels,
        activation="sigmoid", name="t",
    )  # fmt: skip
    from ai_edge_litert.interpreter import Interpreter

    names = [item["op_name"] for item in Interpreter(model_content=content)._get_ops_details()]
    assert "LOGISTIC" in names


def test_other_tokenizers_are_refused_with_the_reason(artifacts, bundle):
    io = artifacts["bert"].io
    good = json.loads((bundle / "tokenizer.json").read_text())
    assert refusal(good, io) is None
    assert "upper case" in refusal({**good, "normalizer": {**good["normalizer"], "lowercase": False}}, io)
    assert "BPE" in refusal({**good, "model": {"type": "BPE"}}, io)
    assert "two texts" in refusal(good, io.model_copy(update={"text_columns": 2}))
    moved = {"[PAD]": 1, "x": 0, "[CLS]": 2, "[SEP]": 3, "[UNK]": 4}
    assert "special tokens" in refusal({**good, "model": {**good["model"], "vocab": moved}}, io)


def test_steps_that_no_table_knows_are_named_with_their_settings(bundle):
    definition = json.loads((bundle / "tokenizer.json").read_text())
    definition["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Odd", "size": 3}]}
    assert describe(definition)["words"] == ['`Odd` of the `tokenizers` library, with {"size": 3}.']


def test_only_tflite_artifacts_and_our_own_folders(artifacts, onnx_artifact, tmp_path):
    with pytest.raises(ArtifactError, match="found format onnx"):
        write_bundle(Artifact.load(onnx_artifact), tmp_path / "app")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(FolderError):
        write_bundle(artifacts["bert"], tmp_path / "mine")
