"""Every task in every format, on one family: proven against PyTorch, with its outputs and its io.json."""

import json

import numpy as np
import pytest
import torch

from compressor.core.artifact import Artifact
from compressor.core.errors import ModelError, UsageError
from compressor.core.task import TASKS, is_per_token, outputs_of
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.evaluation import predict_outputs
from compressor.families.heads import find_task
from compressor.models import load_compressed
from export.build import export_artifacts
from export.source import ExportRequest
from export.text_predictor import TextPredictor
from tests.models import FAMILIES, LABELS, PAIRS, SENTENCES, TAGS, tiny_task_checkpoint, write_sentence_transformer

NEW_TASKS = [task for task in TASKS if task != "text-classification"]
LENGTHS = {"onnx": (8, 32), "tflite": (8, 16), "tensorrt": (8, 32)}
PRECISIONS = {"onnx": ("fp32", "int8"), "tflite": ("fp32", "int8"), "tensorrt": ("fp16",)}
ACTIVATIONS = {"multi-label-classification": "sigmoid", "regression": "identity", "sentence-embedding": "identity"}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory, trained):
    """Returns the checkpoint of a task, with a trained body where it is a BERT, made on first use."""
    made = {}

    def make(task, **changes):
        key = (task, *changes.items())
        if key not in made:
            made[key] = tiny_task_checkpoint(
                task, tmp_path_factory.mktemp(task), **{"body": None if "family" in changes else trained, **changes}
            )
        return made[key]

    return make


def exported(checkpoint, output, *, formats=("onnx",), precisions=("fp32",), texts=SENTENCES, **changes):
    request = ExportRequest(
        formats=formats, precisions=precisions, lengths=LENGTHS[formats[0]], parity_texts=texts, parity_source="test",
        name="t", **changes,
    )  # fmt: skip
    return export_artifacts(checkpoint, request, output).artifacts


def texts_of(task):
    return PAIRS if task == "question-answering" else SENTENCES


def reference(checkpoint, task, texts, max_tokens):
    data = encode_split(checkpoint, Split(tuple(texts), (0,) * len(texts)), max_tokens=max_tokens)
    return predict_outputs(load_compressed(checkpoint), data, task=task)


@pytest.mark.parametrize("format_name", PRECISIONS)
@pytest.mark.parametrize("task", NEW_TASKS)
def test_a_task_in_a_format_gives_pytorch_s_answers(checkpoints, tmp_path, task, format_name):
    checkpoint = checkpoints(task)
    texts = texts_of(task)
    made = exported(checkpoint, tmp_path, formats=(format_name,), precisions=PRECISIONS[format_name], texts=texts)
    wanted = reference(checkpoint, task, texts, made[0].io.max_tokens)
    for artifact in made:
        io = Artifact.load(artifact.path).io
        assert (io.task, io.activation) == (task, ACTIVATIONS.get(task, "softmax"))
        assert io.text_columns == (2 if task == "question-answering" else 1)
        assert all(set(signature.output_roles) == set(outputs_of(task)) for signature in io.signatures)
        parity = json.loads((artifact.path / "parity.json").read_text())
        assert [output["name"] for output in parity["outputs"]] == list(outputs_of(task))
        assert parity["agrees_on"]
        found = TextPredictor.load(artifact).run(texts)
        for name in outputs_of(task):
            for ours, theirs in zip(found.rows[name], wanted.rows[name], strict=True):
                assert ours.shape == theirs.shape
            spread = np.concatenate([row.ravel() for row in wanted.rows[name]]).std()
            worst = max(np.abs(a - b).max() for a, b in zip(found.rows[name], wanted.rows[name], strict=True))
            assert worst <= {"fp32": 1e-4, "fp16": 2e-2, "int8": 1.5}[artifact.manifest.precision] * spread


def test_two_texts_reach_the_graph_as_two_token_types(checkpoints, tmp_path):
    checkpoint = checkpoints("text-classification")
    (artifact,) = exported(checkpoint, tmp_path, texts=PAIRS)
    assert artifact.io.text_columns == 2
    predictor = TextPredictor.load(artifact)
    found, wanted = predictor.run(PAIRS).logits, reference(checkpoint, "text-classification", PAIRS, 32).logits
    np.testing.assert_allclose(found, wanted, atol=1e-4 * wanted.std())
    item = predictor.encoder.encode([PAIRS[0]])[0]
    batch = predictor.encoder.pad([item])
    assert set(batch["token_type_ids"][0]) == {0, 1}
    without = {**batch, "token_type_ids": np.zeros_like(batch["token_type_ids"])}
    assert np.abs(predictor.predictors[0].logits(batch) - predictor.predictors[0].logits(without)).max() > 1e-3


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_an_embedding_is_what_sentence_transformers_computes(checkpoints, tmp_path, pooling):
    checkpoint = checkpoints("sentence-embedding", pooling=pooling)
    (artifact,) = exported(checkpoint, tmp_path)
    predictor = TextPredictor.load(artifact)
    from transformers import AutoModel

    model = AutoModel.from_pretrained(checkpoint.path).eval()
    for text, vector in zip(SENTENCES, predictor.run(SENTENCES).rows["embedding"], strict=True):
        batch = {k: torch.from_numpy(v) for k, v in predictor.encoder.pad(predictor.encoder.encode([text])).items()}
        with torch.no_grad():
            states = model(**batch).last_hidden_state[0]
        expected = states.mean(dim=0) if pooling == "mean" else states[0]
        np.testing.assert_allclose(vector, torch.nn.functional.normalize(expected, dim=0).numpy(), atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_pooled_without_its_pooler(checkpoints, tmp_path, family):
    model = load_compressed(checkpoints("sentence-embedding", family=family))
    assert not [name for name, _ in model.named_parameters() if "pooler" in name]
    from compressor.families import adapter_for

    adapter = adapter_for(model.config)
    assert len(adapter.encoder_layers(model)) in (1, 2)
    assert all(adapter.in_body(name) for name, _ in model.named_parameters())


@pytest.mark.parametrize("task", TASKS)
def test_the_task_is_found_from_the_checkpoint(checkpoints, task):
    assert find_task(checkpoints(task)) == task


def test_the_task_may_be_overridden(checkpoints, tmp_path):
    checkpoint = checkpoints("text-classification")
    (artifact,) = exported(checkpoint, tmp_path, task="multi-label-classification")
    assert artifact.io.activation == "sigmoid"
    (artifact,) = exported(checkpoint, tmp_path / "e", task="sentence-embedding")
    assert artifact.io.signatures[0].outputs[0].shape == ("batch", 32)


@pytest.mark.parametrize(("change", "message"), [
    (lambda folder: write_sentence_transformer(folder, "mean", "Dense"), "a Dense module"),
    (lambda folder: write_sentence_transformer(folder, "max"), "pooled by max_tokens"),
    (lambda folder: (folder / "1_Pooling" / "config.json").write_text("{"), "cannot be read"),
])  # fmt: skip
def test_pooling_that_cannot_be_carried_is_refused(tmp_path, change, message):
    checkpoint = tiny_task_checkpoint("sentence-embedding", tmp_path / "m")
    change(checkpoint.path)
    with pytest.raises(ModelError, match=message):
        exported(checkpoint, tmp_path / "out")


def test_a_head_that_no_format_carries_is_refused(tmp_path):
    checkpoint = tiny_task_checkpoint("token-classification", tmp_path / "m")
    config = json.loads((checkpoint.path / "config.json").read_text())
    (checkpoint.path / "config.json").write_text(json.dumps({**config, "architectures": ["BertForMaskedLM"]}))
    with pytest.raises(ModelError, match="is a BertForMaskedLM") as error:
        exported(type(checkpoint)(checkpoint.path), tmp_path / "out")
    assert "--task sentence-embedding" in error.value.remedy


def test_lengths_beyond_what_the_checkpoint_s_own_tokenisation_keeps_are_refused(tmp_path):
    checkpoint = tiny_task_checkpoint("sentence-embedding", tmp_path / "m")
    write_sentence_transformer(checkpoint.path, max_tokens=16)
    with pytest.raises(UsageError, match="at most 16"):
        exported(checkpoint, tmp_path / "out")


def test_labels_are_written_only_where_there_are_some(checkpoints, tmp_path):
    for task, labels in (("token-classification", TAGS), ("multi-label-classification", LABELS)):
        (artifact,) = exported(checkpoints(task), tmp_path / task)
        assert artifact.labels == labels
        assert is_per_token(task) == (len(artifact.io.signatures[0].outputs[0].shape) == 3)
    (artifact,) = exported(checkpoints("question-answering"), tmp_path / "qa")
    assert artifact.labels == ()
