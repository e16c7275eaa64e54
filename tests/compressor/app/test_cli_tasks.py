"""Every task from the command line: text in, the task's own answer and metrics out, whoever made the file."""

import json

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from compressor.app.cli import app
from tests.models import PAIRS, SENTENCES, TAGS, tiny_task_checkpoint

WORDS = tuple(text for text in SENTENCES if text)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answers(model, *texts, pair=()):
    pairs = [item for text in pair for item in ("--pair", text)]
    result = run("predict", model, *texts, *pairs, "--json", "--threads", 1)
    assert result.exit_code == 0, result.output
    shown = run("predict", model, *texts, *pairs, "--threads", 1)
    assert shown.exit_code == 0, shown.output
    return json.loads(result.stdout)


def score(model, folder, *rows):
    file = folder / "data.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    result = run("evaluate", model, "--data", file, "--json", "--threads", 1)
    assert result.exit_code == 0, result.output
    assert run("evaluate", model, "--data", file, "--threads", 1).exit_code == 0
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def model_of(tmp_path_factory, trained):
    made = {}

    def make(task):
        if task not in made:
            made[task] = tiny_task_checkpoint(task, tmp_path_factory.mktemp(task), body=trained).path
        return made[task]

    return make


def test_a_pair_of_texts(model_of, tmp_path):
    model = model_of("text-classification")
    (first, second), (other, another) = PAIRS[:2]
    given = answers(model, first, other, pair=(second, another))
    assert [item["text"] for item in given] == [[first, second], [other, another]]
    rows = [{"text": a, "text_pair": b, "label": item["label"]} for (a, b), item in zip(PAIRS, given, strict=False)]
    assert score(model, tmp_path, *rows)["value"] == 1.0
    wrong = run("predict", model, "a", "b", "c", "--pair", "x", "--pair", "y")
    assert wrong.exit_code == 2
    assert "expected one each, or one for all" in wrong.stderr.replace("\n", " ")


def test_several_labels(model_of, tmp_path):
    given = answers(model_of("multi-label-classification"), *WORDS)
    assert all(set(item["labels"]) == {n for n, p in item["scores"].items() if p > 0.5} for item in given)
    rows = [{"text": item["text"], "labels": item["labels"]} for item in given]
    found = score(model_of("multi-label-classification"), tmp_path, *rows)
    assert (found["metric"], found["value"], found["correct"]) == ("micro_f1", 1.0, len(WORDS))


def test_a_number(model_of, tmp_path):
    given = answers(model_of("regression"), *WORDS)
    found = score(model_of("regression"), tmp_path, *({"text": x["text"], "score": x["value"]} for x in given))
    assert (found["metric"], found["value"]) == ("spearman", pytest.approx(1.0))
    assert found["details"]["root_mean_squared_error"] < 1e-5


def test_entities_with_their_places(model_of, tmp_path):
    model = model_of("token-classification")
    given = answers(model, *WORDS)
    entities = [(item["text"], entity) for item in given for entity in item["entities"]]
    assert entities
    assert all(text[entity["start"] : entity["end"]] == entity["text"] for text, entity in entities)
    rows = [{"tokens": text.split(), "tags": ["O"] * len(text.split())} for text in WORDS]
    for item, row in zip(given, rows, strict=True):
        for entity in item["entities"]:
            first = len(item["text"][: entity["start"]].split())
            for place in range(first, first + len(entity["text"].split())):
                row["tags"][place] = ("B-" if place == first else "I-") + entity["label"]
    found = score(model, tmp_path, *rows)
    assert (found["metric"], found["value"]) == ("entity_f1", 1.0)
    assert {tag for row in rows for tag in row["tags"]} <= set(TAGS)


def test_a_vector(model_of, tmp_path):
    model = model_of("sentence-embedding")
    vectors = np.array([item["embedding"] for item in answers(model, *WORDS)])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    rows = [
        {"sentence1": WORDS[a], "sentence2": WORDS[b], "score": float(vectors[a] @ vectors[b])}
        for a, b in ((0, 1), (0, 2), (1, 2), (2, 3))
    ]
    assert score(model, tmp_path, *rows)["value"] == pytest.approx(1.0)
    refused = run("predict", model, "a", "--pair", "b")
    assert refused.exit_code == 2
    assert "a text is embedded by itself" in refused.stderr.replace("\n", " ")


@pytest.fixture(scope="module")
def questions(model_of, tmp_path_factory):
    """The question answering model as an artifact, judged on its own answers, and the file it was judged on."""
    model, folder = model_of("question-answering"), tmp_path_factory.mktemp("questions")
    asked, contexts = [a for a, _ in PAIRS[:4]], [b for _, b in PAIRS[:4]]
    given = answers(model, *asked, pair=contexts)
    data = folder / "qa.jsonl"
    rows = [
        {"question": q, "context": c, "answer": item["answer"], "answer_start": item["start"]}
        for q, c, item in zip(asked, contexts, given, strict=True)
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    made = run("convert", model, "--to", "onnx", "--lengths", "16,32", "--eval", data, "-o", folder / "made",
               "--threads", 1)  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "same span: 100.0%" in made.stdout
    return folder / "made", data


def test_a_span_of_a_context(questions):
    artifact, data = questions
    found = json.loads(run("evaluate", artifact, "--data", data, "--json", "--threads", 1).stdout)
    assert (found["metric"], found["value"], found["details"]["exact_match"]) == ("f1", 1.0, 1.0)
    assert json.loads((artifact / "manifest.json").read_text())["reference"]["artifact"] == 1.0
    question, context = PAIRS[1]
    (answer,) = answers(artifact, question, pair=(context,))
    assert context[answer["start"] : answer["end"]] == answer["answer"]
    single = run("predict", artifact, "where is my order")
    assert single.exit_code == 2
    assert "with --pair" in single.stderr
    assert "question as first text" in (artifact / "README.md").read_text()


def test_latency_does_not_ask_for_the_task(questions, tmp_path):
    artifact, _ = questions
    arguments = ("--runs", 2, "--json", "-o", tmp_path / "m")
    found = json.loads(run("bench", artifact, *arguments).stdout)
    assert found["runs"] == 2
    assert min(map(int, found["by_length"])) > 10  # built-in sentences, paired, for a model that reads pairs


def test_a_bare_file_works_with_what_can_be_known(questions, tmp_path):
    artifact, data = questions
    file = tmp_path / "someone's.onnx"
    file.write_bytes((artifact / "model.onnx").read_bytes())
    for command in (["bench", file], ["predict", file, "a", "--pair", "b"], ["evaluate", file, "--data", data]):
        refused = run(*command)
        assert refused.exit_code == 2
        assert "--tokenizer" in refused.stderr
    measured = run("bench", file, "--tokenizer", artifact, "--runs", 2, "--json")
    assert json.loads(measured.stdout)["runs"] == 2, measured.output
    found = run("evaluate", file, "--data", data, "--tokenizer", artifact, "--threads", 1, "--json")
    assert json.loads(found.stdout)["value"] == 1.0, found.output
    bare = tmp_path / "tokenizer"
    bare.mkdir()
    (bare / "tokenizer.json").write_bytes((artifact / "tokenizer.json").read_bytes())
    found = run("evaluate", file, "--data", data, "--tokenizer", bare, "--threads", 1, "--json")
    assert json.loads(found.stdout)["value"] == 1.0, found.output


def test_a_bare_classifier_without_a_config_has_numbered_labels(onnx_artifact, tmp_path):
    (onnx_artifact / "config.json").unlink()
    file, tokenizer = onnx_artifact / "model.onnx", onnx_artifact
    result = run("predict", file, "cancel my order", "--tokenizer", tokenizer, "--threads", 1, "--json")
    assert set(json.loads(result.stdout)[0]["scores"]) == {"LABEL_0", "LABEL_1", "LABEL_2"}, result.output


def test_a_bare_file_that_gives_no_answer_is_refused(onnx_artifact):
    file = onnx_artifact / "model.onnx"
    model = onnx.load(file)
    model.graph.output[0].name = "last_hidden_state"
    for node in model.graph.node:
        node.output[:] = ["last_hidden_state" if name == "logits" else name for name in node.output]
    onnx.save(model, file)
    for command in (["bench", file], ["predict", file, "a"]):
        refused = run(*command, "--tokenizer", onnx_artifact)
        assert refused.exit_code == 2, refused.output
        assert "gives last_hidden_state" in refused.stderr.replace("\n", " ")
