"""The command line as a user meets it: results on stdout, one message an error, the documented exit codes."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from compressor.app.benchmark import BenchmarkConfig, BenchmarkStage
from compressor.app.cli import app, main
from compressor.core.errors import UsageError
from compressor.families import adapter_for
from compressor.models import load_config
from tests.benchmarks.measurements import measurement
from tests.models import LABELS, SENTENCES


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def failed(result, code, *words):
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    for word in words:
        assert word in result.stderr.replace("\n", " ")
    return result


@pytest.fixture
def data_file(tmp_path):
    file = tmp_path / "data.tsv"
    file.write_text("text\tlabel\nwhere is my order\ttrack\ni want a refund\trefund\ncancel my order\tcancel\n")
    return file


@pytest.fixture
def sentences_file(tmp_path):
    file = tmp_path / "sentences.txt"
    file.write_text("\n".join(text for text in SENTENCES if text))
    return file


def test_convert_then_inspect_predict_evaluate(checkpoint_of, tmp_path, data_file, sentences_file):
    out = tmp_path / "made"
    made = run("convert", checkpoint_of("bert").path, "--to", "onnx", "--precision", "int8", "--lengths", "8,16",
               "--calibrate", sentences_file, "-o", out, "--threads", 1)  # fmt: skip
    assert made.exit_code == 0, made.output
    assert "precision found" in made.stdout
    found = json.loads(run("inspect", out, "--json").stdout)
    assert found["schema_version"] == 1
    assert (found["format"], found["precision"], found["sha256_verified"]) == ("onnx", "int8", True)
    assert {"size_bytes", "unique_parameter_bytes", "parameters", "lengths", "operators", "gemm_types"} <= set(found)
    answers = json.loads(run("predict", out, "where is my order", "", "--json").stdout)
    assert [answer["text"] for answer in answers] == ["where is my order", ""]
    assert set(answers[0]["scores"]) == set(LABELS)
    assert abs(sum(answers[0]["scores"].values()) - 1) < 1e-4
    score = json.loads(run("evaluate", out, "--data", data_file, "--json").stdout)
    assert score["examples"] == 3
    assert score["metric"] == "accuracy"


def test_convert_keeps_an_older_artifact_when_the_new_one_fails(checkpoint_of, onnx_artifact, sentences_file):
    before = (onnx_artifact / "manifest.json").read_bytes()
    result = run("convert", checkpoint_of("bert").path, "--to", "onnx", "--lengths", "8,9000", "--calibrate",
                 sentences_file, "-o", onnx_artifact)  # fmt: skip
    failed(result, 2, "expected numbers from 3 to 64")
    assert (onnx_artifact / "manifest.json").read_bytes() == before
    assert [path.name for path in onnx_artifact.parent.iterdir() if path.name.startswith(".")] in (
        [],
        [".compressor.json"],
    )


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", "no-such-recipe.yaml"], 2, ["does not exist"]),
        (["convert", "no-such-model", "--to", "onnx", "-o", "{tmp}/o"], 2, ["no-such-model", "check the path"]),
        (["convert", "{tmp}", "--to", "onnx", "-o", "{tmp}/o"], 2, ["no config.json"]),
        (["inspect", "{tmp}"], 2, ["no config.json"]),
        (["inspect", "bare/none.onnx"], 2, ["bare/none.onnx does not exist", "check the path"]),
        (["inspect", "{tmp}/none"], 2, ["none does not exist", "check the path"]),
        (["bench", "{tmp}/none"], 2, ["none does not exist; expected an artifact folder"]),
        (["convert", "{model}", "--to", "onnx", "--lengths", "0", "-o", "{tmp}/o"],
         2, ["pass one or more lengths of 3 to 64 tokens"]),
        (["gate", "{artifact}", "--budget", "{tmp}/none.yaml"],
         2, ["none.yaml does not exist", "compressor gate --init"]),
        (["evaluate", "{model}", "--data", "{tmp}/columns.tsv"], 2, ["rename the column in the file"]),
        (["evaluate", "{model}", "--data", "{tmp}/none.tsv"], 2, ["does not exist"]),
        (["bench", "{tmp}"], 2, ["holds no manifest.json"]),
        (["devices", "probe", "snapdragn-865"], 2, ["did you mean 'snapdragon-865'"]),
        (["convert", "{model}", "--to", "tensorrt", "--device", "snapdragon-865", "-o", "{tmp}/o"],
         2, ["tensorrt fp32 on snapdragon-865"]),
        (["convert", "{model}", "--to", "onnx", "--lengths", "8,x", "-o", "{tmp}/o"], 2, ["expected whole numbers"]),
        (["convert", "{model}", "--to", "onnx", "--profiles", "1:8:8", "-o", "{tmp}/o"], 2, ["for TensorRT"]),
        (["convert", "{model}", "--to", "tensorrt", "--profiles", "9:8:8", "-o", "{tmp}/o"], 2, ["min <= opt <= max"]),
        (["convert", "{model}", "--to", "tensorrt", "--profiles", "1:8:8", "--lengths", "8", "-o", "{tmp}/o"],
         2, ["--lengths and --profiles both say the lengths"]),
        (["convert", "{model}", "--to", "tensorrt", "--profiles", "1:8:65", "-o", "{tmp}/o"],
         2, ["expected numbers from 3 to 64"]),
        (["convert", "{model}", "--to", "tensorrt", "--precision", "int8", "-o", "{tmp}/o"], 2, ["--calibrate FILE"]),
        (["bench", "{artifact}", "--device", "jetson-orin-nano@ssh:me@127.0.0.1"], 4, ["ssh"]),
    ],
)  # fmt: skip
def test_a_user_s_error_is_one_message_with_its_code(checkpoint_of, onnx_artifact, tmp_path, arguments, code, words):
    places = {"tmp": tmp_path, "model": checkpoint_of("bert").path, "artifact": onnx_artifact}
    (tmp_path / "columns.tsv").write_text("text\tintent\nhello\tgreet\nbye\tleave\n")
    failed(run(*(argument.format(**places) for argument in arguments)), code, *words)
    assert not (tmp_path / "o").exists()


def test_an_error_with_json_is_one_document(tmp_path):
    result = failed(run("inspect", tmp_path, "--json"), 2)
    document = json.loads(result.stdout)
    assert document["error"]["code"] == "model"
    assert document["error"]["remedy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gate"], "Missing argument"),
        (["gate", "x", "--bogus"], "No such option: --bogus"),
        (["gate", "x", "--threads", "0"], "Invalid value for '--threads'"),
        (["nonsense"], "No such command 'nonsense'"),
    ],
)
def test_wrong_options_with_json_are_one_document_too(monkeypatch, capsys, arguments, message):
    for as_json in (True, False):
        monkeypatch.setattr("sys.argv", ["compressor", *arguments, *(["--json"] if as_json else [])])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        assert ended.value.code == 2
        assert message in found.err
        if as_json:
            error = json.loads(found.out)["error"]
            assert (error["code"], message in error["message"]) == ("usage", True)
            assert "--help" in error["remedy"]
        else:
            assert found.out == ""


def test_the_command_line_ends_with_a_command_s_own_exit_code(monkeypatch, capsys, tmp_path):
    for arguments, code in ((["devices", "list"], 0), (["inspect", str(tmp_path / "none")], 2), (["--help"], 0)):
        monkeypatch.setattr("sys.argv", ["compressor", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
    monkeypatch.setattr("compressor.app.doctor.version", lambda name: None)
    monkeypatch.setattr("sys.argv", ["compressor", "doctor"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_a_flipped_byte_is_refused_by_every_command(onnx_artifact, data_file):
    model = bytearray((onnx_artifact / "model.onnx").read_bytes())
    model[len(model) // 2] ^= 1
    (onnx_artifact / "model.onnx").write_bytes(model)
    for command in (["inspect"], ["predict"], ["evaluate"], ["bench"]):
        extra = {"predict": ["hello"], "evaluate": ["--data", data_file]}.get(command[0], [])
        failed(run(*command, onnx_artifact, *extra), 2, "model.onnx is altered")


def test_compare_shows_the_answers_that_differ(checkpoint_of, trained, tmp_path, data_file):
    result = run("compare", checkpoint_of("bert").path, trained.path, "--data", data_file, "--json", "--threads", 1)
    document = json.loads(result.stdout)
    left = {item["text"]: item["label"] for item in _answers(checkpoint_of("bert").path)}
    right = {item["text"]: item["label"] for item in _answers(trained.path)}
    expected = {(text, left[text], right[text]) for text in left if left[text] != right[text]}
    assert expected
    assert {(flip["text"], flip["left"], flip["right"]) for flip in document["flips"]} == expected
    assert document["right_evaluation"]["correct"] > document["left_evaluation"]["correct"]


def _answers(model):
    texts = ("where is my order", "i want a refund", "cancel my order")
    return json.loads(run("predict", model, *texts, "--json", "--threads", 1).stdout)


@pytest.fixture
def steady_times(monkeypatch):
    """Replaces the measurement by 100 independent times around 2 ms, so that no verdict depends on this machine."""
    times = np.random.default_rng(0).lognormal(np.log(2.0), 0.1, 100)

    def measured(subjects, *_args, **_options):
        return [measurement(times, subject=item.name, subject_hash=item.hash) for item in subjects]

    monkeypatch.setattr("compressor.app.latency.measure", measured)


def test_gate_exits_with_its_verdict(onnx_artifact, sentences_file, tmp_path, steady_times):
    budget = tmp_path / "budgets.yaml"
    arguments = ["gate", onnx_artifact, "--budget", budget, "--sentences", sentences_file]
    budget.write_text("version: 1\nbudgets:\n  - {device: host, p95_ms: 4.0, size_mb: 1.0}\n")
    junit, table = tmp_path / "made" / "junit.xml", tmp_path / "summary.md"
    passed = run(*arguments, "--junit", junit, "--summary", table, "--json")
    assert passed.exit_code == 0, passed.output
    document = json.loads(passed.stdout)
    assert document["verdict"] == "pass"
    assert {check["name"] for check in document["checks"]} == {"p95_ms", "size_mb"}
    assert 'failures="0"' in junit.read_text()
    assert "| p" in table.read_text().replace("`", "")
    budget.write_text("version: 1\nbudgets:\n  - {device: host, p95_ms: 1.5}\n")
    assert run(*arguments).exit_code == 1
    budget.write_text("version: 1\nbudgets:\n  - {device: host, p95_ms: 2.35}\n")
    assert run(*arguments).exit_code == 3
    budget.write_text("version: 1\nbudgets:\n  - {device: host, p95: 5.0}\n")
    failed(run(*arguments), 2, "p95")


def test_gate_of_a_folder_measures_only_what_a_budget_is_for(onnx_artifacts, sentences_file, tmp_path):
    budget = tmp_path / "budgets.yaml"
    arguments = ["gate", onnx_artifacts, "--budget", budget, "--sentences", sentences_file, "--runs", 60, "--json"]
    budget.write_text('version: 1\nbudgets:\n  - {device: host, artifact: "*", size_mb: 1.0}\n')
    document = json.loads(run(*arguments).stdout)
    assert document["verdict"] == "pass"
    assert {check["runs"] for check in document["checks"]} == {0}
    budget.write_text('version: 1\nbudgets:\n  - {device: host, artifact: "tflite-*", p95_ms: 5.0}\n')
    failed(run(*arguments), 2, "matches none of")


def test_a_limit_on_accuracy_needs_labelled_text(checkpoint_of, tmp_path):
    result = run("convert", checkpoint_of("bert").path, "--to", "onnx", "--max-drop-points", 1, "-o", tmp_path / "o")
    failed(result, 2, "add --eval FILE")


def test_an_output_that_cannot_be_written_is_told_before_any_work(onnx_artifact, sentences_file, tmp_path):
    (tmp_path / "file").write_text("x")
    arguments = ["--sentences", sentences_file, "--runs", 5, "-o", tmp_path / "file" / "x"]
    failed(run("bench", onnx_artifact, *arguments), 2, "cannot be written")


def test_the_verbs_are_functions_however_often_they_are_asked_for(onnx_artifact, data_file):
    import compressor

    for _ in range(2):
        assert all(callable(getattr(compressor, name)) for name in compressor.__all__)
    assert compressor.evaluate(str(onnx_artifact), str(data_file), threads=1).examples == 3
    assert compressor.inspect(onnx_artifact).precision == "fp32"


def test_a_git_lfs_pointer_is_told_as_such(checkpoint_of, tmp_path):
    import shutil

    copy = shutil.copytree(checkpoint_of("bert").path, tmp_path / "copy")
    (copy / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    failed(run("inspect", copy), 2, "no whole safetensors file")


def test_bench_gives_the_documented_keys(onnx_artifact, sentences_file, tmp_path):
    result = run("bench", onnx_artifact, "--sentences", sentences_file, "--runs", 20, "-o", tmp_path / "m", "--json")
    document = json.loads(result.stdout)
    assert {"device", "threads", "runs", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "total_p95_ms", "by_length",
            "tokenize_p50_ms"} <= set(document)  # fmt: skip
    (file,) = (tmp_path / "m").iterdir()
    assert len(json.loads(file.read_text())["runs"]["inference_ms"]) == 20


def test_doctor_and_devices_answer():
    assert run("doctor").exit_code == 0
    assert "onnxruntime" in run("doctor").stdout
    assert "snapdragon-865" in run("devices", "list").stdout
    assert run("devices", "probe", "host").stdout.splitlines()[-1].startswith(("measurable", "not measurable: "))


def test_ctrl_c_ends_with_130_and_leaves_nothing(checkpoint_of, tmp_path, sentences_file):
    command = [sys.executable, "-m", "compressor", "convert", str(checkpoint_of("bert").path), "--to", "onnx", "-o",
               str(tmp_path / "out"), "--calibrate", str(sentences_file)]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob(".out.*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sentences.txt"]


def test_a_reader_that_leaves_is_no_verdict():
    process = subprocess.Popen([sys.executable, "-m", "compressor", "devices", "list"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    process.stdout.close()
    stderr = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=120) == 141, stderr
    assert "Traceback" not in stderr


def test_cores_that_are_not_there_are_refused_on_the_command_line_and_in_a_recipe(onnx_artifact, checkpoint_of):
    for command in (("bench", onnx_artifact), ("gate", onnx_artifact, "--budget", "none.yaml")):
        assert "--cpus" in run(command[0], "--help").output
    failed(run("bench", onnx_artifact, "--cpus", "bigg", "--runs", 4), 2, "'bigg' names no cores of host", "big")
    failed(run("bench", onnx_artifact, "--cpus", "4000", "--runs", 4), 2, "has no core 4000")
    assert BenchmarkConfig(cpus=1).cpus == 1
    with pytest.raises(UsageError, match="has no core 4000"):
        BenchmarkStage(BenchmarkConfig(cpus="4000")).check(checkpoint_of("bert"), ())


def test_help_breaks_no_list_of_choices_in_the_middle_of_a_word():
    text = run("convert", "--help").stdout
    for task in ("multi-label-classification", "token-classification", "question-answering"):
        assert task in " ".join(text.split()).replace("- ", "-")
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_inspect_names_the_most_tokens_a_checkpoint_takes(checkpoint_of, family):
    checkpoint = checkpoint_of(family)
    config = load_config(checkpoint)
    most = adapter_for(config).max_tokens(config)
    assert f"any up to {most} tokens" in run("inspect", checkpoint.path).stdout
