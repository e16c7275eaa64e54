from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from compressor.core.artifact import Artifact
from compressor.core.errors import ArtifactError, DeviceError, MissingExtraError
from devices.profiles import parse_device
from devices.runner import RUNNER, EntryPoint, InputFeed, Job, RunnerResult, WarmUp, entry_points, read_result, run_job
from devices.targets import target_for
from tests.benchmarks.artifacts import tiny_artifact
from tests.models import SENTENCES, tiny_checkpoint

QUICK = WarmUp(min_runs=1, max_runs=3, max_seconds=1.0)
LONG = "where is my card " * 20
TEXTS = (*SENTENCES, LONG)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tiny_artifact(tmp_path_factory.mktemp("runner") / "onnx-fp32")


def job_for(artifact: Artifact, **changes) -> Job:
    values = {
        "runtime": "onnxruntime",
        "model": str(artifact.model_path),
        "tokenizer": str(artifact.path / "tokenizer.json"),
        "threads": 1,
        "max_tokens": artifact.io.max_tokens,
        "lengths": artifact.io.lengths,
        "pad_id": artifact.io.pad_id,
        "signatures": entry_points(artifact.io),
        "sentences": TEXTS,
        "order": (5, 0, 3, 4, 0, 1, 2, 5),
        "warmup": QUICK,
    }
    return Job(**{**values, **changes})


def run(job: Job) -> RunnerResult:
    with target_for(parse_device("host")) as target:
        return run_job(target, job, time_limit_s=120)


@pytest.fixture(scope="module")
def result(artifact: Artifact) -> RunnerResult:
    return run(job_for(artifact))


def test_every_run_comes_back_in_the_order_asked_for(result: RunnerResult) -> None:
    assert result.runs.sentence == (5, 0, 3, 4, 0, 1, 2, 5)
    assert all(value > 0 for value in (*result.runs.inference_ms, result.cold_ms, result.load_ms))
    assert result.runtime.startswith("onnxruntime ")
    assert result.warmup_runs >= 3
    assert result.peak_memory_mb is not None
    assert 20 < result.peak_memory_mb < 2000


def test_a_sentence_runs_at_the_smallest_bucket_that_holds_it(result: RunnerResult) -> None:
    tokens = dict(zip(result.runs.sentence, result.runs.tokens, strict=True))
    lengths = dict(zip(result.runs.sentence, result.runs.length, strict=True))
    assert tokens == {0: 6, 1: 7, 2: 6, 3: 2, 4: 26, 5: 32}
    assert lengths == {0: 8, 1: 8, 2: 8, 3: 8, 4: 32, 5: 32}


def test_too_long_sentences_are_cut_and_named_once(result: RunnerResult) -> None:
    assert result.truncated_sentences == (5,)


def test_without_buckets_a_sentence_runs_at_its_own_length(artifact: Artifact) -> None:
    runs = run(job_for(artifact, lengths=())).runs
    assert runs.length == runs.tokens


def test_pad_to_runs_all_at_one_length_and_cuts_to_it(artifact: Artifact) -> None:
    result = run(job_for(artifact, pad_to=16))
    assert set(result.runs.length) == {16}
    assert set(result.truncated_sentences) == {4, 5}
    assert max(result.runs.tokens) == 16


def test_inputs_are_fed_by_the_file_s_names_and_in_its_types(artifact: Artifact) -> None:
    """The mask stands first in the file and is int32, the ids are int64: by position or in one type the run fails."""
    entry = entry_points(artifact.io)[0]
    assert entry.inputs["input_ids"] == InputFeed(name="the_ids", dtype="int64")
    assert entry.inputs["attention_mask"] == InputFeed(name="the_mask", dtype="int32")
    swapped = EntryPoint(
        key=None,
        length=None,
        inputs={"input_ids": entry.inputs["attention_mask"], "attention_mask": entry.inputs["input_ids"]},
    )
    run(job_for(artifact, signatures=(swapped,)))
    wrong_type = EntryPoint(
        key=None, length=None, inputs={**entry.inputs, "input_ids": InputFeed(name="the_ids", dtype="int32")}
    )
    with pytest.raises(DeviceError, match="onnxruntime could not run"):
        run(job_for(artifact, signatures=(wrong_type,)))


def test_a_hugging_face_folder_runs_in_torch(tmp_path: Path) -> None:
    checkpoint = tiny_checkpoint("bert", tmp_path / "teacher")
    job = Job(
        runtime="torch",
        model=str(checkpoint.path),
        tokenizer=str(checkpoint.path / "tokenizer.json"),
        threads=1,
        max_tokens=64,
        pad_to=64,
        pad_id=0,
        sentences=(("where is my order", "it is late"), "please"),
        order=(0, 1, 0),
        warmup=QUICK,
    )
    result = run(job)
    assert result.runtime.startswith("torch ")
    assert result.runs.length == (64, 64, 64)
    assert result.runs.tokens == (10, 3, 10)


def test_tflite_signatures_are_called_by_key(tmp_path: Path, artifact: Artifact) -> None:
    litert_torch = pytest.importorskip("litert_torch", reason="the tflite extra is not installed")
    torch = pytest.importorskip("torch")

    class Embed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(100, 8)

        def forward(self, ids, mask):
            return (self.table(ids) * mask.unsqueeze(-1)).sum(1)

    def inputs(length: int) -> dict:
        return {name: torch.ones((1, length), dtype=torch.int32) for name in ("ids", "mask")}

    converter = None
    for length in (8, 32):
        start = litert_torch if converter is None else converter
        converter = start.signature(f"seq_{length}", Embed().eval(), sample_kwargs=inputs(length))
    converter.convert().export(str(tmp_path / "model.tflite"))
    feeds = {
        name: InputFeed(name=file, dtype="int32") for name, file in (("input_ids", "ids"), ("attention_mask", "mask"))
    }
    entries = tuple(EntryPoint(key=f"seq_{length}", length=length, inputs=feeds) for length in (8, 32))
    job = job_for(artifact, runtime="litert", model=str(tmp_path / "model.tflite"), lengths=(8, 32), signatures=entries)
    result = run(job)
    assert result.runtime.startswith("ai-edge-litert ")
    assert set(result.runs.length) == {8, 32}


def test_a_model_that_does_not_load_is_a_device_error_without_traceback(artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(DeviceError, match="could not run") as caught:
        run(job_for(artifact, model=str(tmp_path / "model.onnx")))
    assert "Traceback" not in str(caught.value)


def test_an_endless_run_ends_at_the_time_limit(artifact: Artifact) -> None:
    endless = WarmUp(min_runs=10**8, max_runs=10**9, max_seconds=10**6)
    with target_for(parse_device("host")) as target, pytest.raises(DeviceError, match="did not end within 4 s"):
        run_job(target, job_for(artifact, warmup=endless), time_limit_s=4)


def test_the_runner_is_self_contained_and_usable_by_hand(artifact: Artifact, tmp_path: Path) -> None:
    tree = ast.parse(RUNNER.read_text(encoding="utf-8"))
    imported = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module).partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    foreign = imported - set(sys.stdlib_module_names)
    assert foreign == {"numpy", "tokenizers", "onnxruntime", "ai_edge_litert", "torch", "transformers"}

    copied = tmp_path / "elsewhere" / "runner.py"
    copied.parent.mkdir()
    copied.write_bytes(RUNNER.read_bytes())
    request = tmp_path / "job.json"
    request.write_text(job_for(artifact).model_dump_json(), encoding="utf-8")
    done = subprocess.run([sys.executable, "-I", str(copied), str(request)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["runs"]["sentence"] == [5, 0, 3, 4, 0, 1, 2, 5]


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("sentence", [0, 5, 3, 4, 0, 1, 2, 5], "another order"),
        ("inference_ms", [1.0] * 7 + [0.0], "not positive"),
        ("inference_ms", [1.0] * 7, "different lengths"),
        ("tokenize_ms", [1.0] * 7 + [-1.0], "negative"),
        ("tokens", [99] * 8, "more tokens"),
    ],
)
def test_answers_that_do_not_fit_the_job_are_refused(
    artifact: Artifact, result: RunnerResult, column: str, value: list[float], said: str
) -> None:
    answer = result.model_dump(mode="json")
    answer["runs"][column] = value
    with pytest.raises(DeviceError, match=said):
        read_result(json.dumps(answer), job_for(artifact))


def test_answers_that_are_no_result_are_refused(artifact: Artifact) -> None:
    for text in ("", "{}", "[]", "hello"):
        with pytest.raises(DeviceError, match="not a result"):
            read_result(text, job_for(artifact))


def test_a_missing_runtime_names_the_extra(artifact: Artifact) -> None:
    answer = json.dumps({"error": {"type": "ModuleNotFoundError", "message": "No module named 'ai_edge_litert'"}})
    with pytest.raises(MissingExtraError, match=r"compressor\[tflite\]"):
        read_result(answer, job_for(artifact, runtime="litert"))


def test_jobs_and_artifacts_that_make_no_sense_are_refused(artifact: Artifact) -> None:
    with pytest.raises(ValidationError):
        job_for(artifact, order=(0, 99))
    signature = artifact.io.signatures[0]
    for roles in ({**signature.roles, "pixels": "the_ids"}, {"input_ids": "the_ids"}):
        io = artifact.io.model_copy(update={"signatures": (signature.model_copy(update={"roles": roles}),)})
        with pytest.raises(ArtifactError, match="no sentence fills"):
            entry_points(io)


def test_a_runner_that_writes_nothing_does_not_leave_the_last_job_s_answer(artifact: Artifact) -> None:
    with target_for(parse_device("host")) as target:
        run_job(target, job_for(artifact), time_limit_s=120)
        target.python = "true"  # a program that takes any arguments, does nothing and ends well
        with pytest.raises(DeviceError, match="expected the result of a run"):
            run_job(target, job_for(artifact), time_limit_s=120)
