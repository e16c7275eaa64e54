"""The native runner against the Python runtimes: same outputs on x86-64, and the aarch64 bundle's under qemu."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from compressor.core.artifact import IOSpec
from compressor.core.errors import ArtifactError, DeviceError
from devices.runner import EntryPoint, InputFeed, Job, WarmUp, entry_points, read_result
from devices.runners.bundle import NativeRuntime, compiler, native_bundle
from devices.runners.native_request import request_text
from export.backend import backend_for
from tests.devices.arm import bundle_or_skip, qemu
from tests.models import SENTENCES

QUICK = WarmUp(min_runs=1, max_runs=2, max_seconds=0.1)
ORDER = (4, 0, 3, 4, 1)
KINDS = [(kind, precision) for kind in ("onnx", "tflite") for precision in ("fp32", "int8")]
on_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="compares with x86-64")


@cache
def artifact(kind: str, precision: str) -> tuple[Path, IOSpec, Path]:
    """Returns folder, input description and tokenizer of a tiny BERT in a format."""
    pytest.importorskip("litert_torch", reason="the tflite extra is not installed")
    from export.onnx.backend import OnnxBackend
    from tests.export.tflite.samples import LENGTHS, sample

    made = sample("bert")
    if kind == "tflite":
        folder = made.fp32 if precision == "fp32" else made.reduced(precision)
    else:
        backend, folder = OnnxBackend(), made.folder / f"onnx-{precision}"
        if not folder.exists():
            from compressor.quantize.plan import QuantizationPlan

            if not (made.folder / "onnx-fp32").exists():
                (made.folder / "onnx-fp32").mkdir()
                backend.convert(made.model, made.spec, made.folder / "onnx-fp32")
            if precision != "fp32":
                folder.mkdir()
                plan = QuantizationPlan(precision=precision)
                backend.reduce(made.folder / "onnx-fp32", folder, precision, plan)
    io = IOSpec(
        max_tokens=made.spec.max_tokens, lengths=LENGTHS, pad_id=made.spec.pad_id,
        signatures=backend_for(kind).signatures(folder),
    )  # fmt: skip
    return folder, io, made.folder / "checkpoint" / "tokenizer.json"


def job_for(kind: str, precision: str, **changes) -> Job:
    folder, io, tokenizer = artifact(kind, precision)
    values = {
        "runtime": "onnxruntime" if kind == "onnx" else "litert",
        "model": str(folder / backend_for(kind).model_file),
        "tokenizer": str(tokenizer),
        "threads": 1,
        "max_tokens": io.max_tokens,
        "lengths": io.lengths,
        "pad_id": io.pad_id,
        "signatures": entry_points(io),
        "sentences": SENTENCES,
        "order": ORDER,
        "warmup": QUICK,
    }
    return Job(**{**values, **changes})


def run(job: Job, architecture: str, folder: Path, start: Sequence[str] = (), **asked) -> dict:
    runtime: NativeRuntime = "onnxruntime" if job.runtime == "onnxruntime" else "litert"
    bundle = bundle_or_skip(architecture, runtime)
    text, cut = request_text(job, label=bundle.label, **asked)
    (folder / "request").write_text(text, encoding="utf-8")
    command = bundle.command(str(bundle.path), runtime, job.model, str(folder / "request"), str(folder / "result"))
    done = subprocess.run([*start, *command], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads((folder / "result").read_text(encoding="utf-8"))
    assert (done.returncode == 1) == ("error" in answer)
    return {**answer, "cut": cut}


def reference(job: Job, kind: str, precision: str, *, exact: bool = False) -> list[np.ndarray]:
    """Returns each sentence's logits from the Python runtime, in the order of first use."""
    from tests.export.tflite.samples import sample

    folder, io, _ = artifact(kind, precision)
    if exact and kind == "onnx" and precision == "int8":
        folder = unsigned(folder)
    encoder = sample("bert").encoder
    predictor = backend_for(kind).open(folder, io, threads=1)
    found = []
    for index in dict.fromkeys(job.order):
        (encoded,) = encoder.encode([SENTENCES[index]])
        length = next(bucket for bucket in io.lengths if bucket >= len(encoded))
        found.append(predictor.logits(encoder.pad([encoded], length))[0])
    return found


def unsigned(folder: Path) -> Path:
    """Writes the same INT8 graph with unsigned weights, which every x86-64 CPU multiplies exactly.

    Without VNNI, ONNX Runtime's kernel for unsigned inputs and signed weights adds pairs of products in 16 bits, which
    overflow (microsoft/onnxruntime, docs on quantisation: "reduce_range"). ARM64 and VNNI have no such limit.
    """
    import onnx
    from onnx import TensorProto, numpy_helper

    model = onnx.load(folder / "model.onnx")
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "MatMulInteger" or stored[node.input[1]].data_type != TensorProto.INT8:
            continue
        for place in (1, 3):
            tensor = stored[node.input[place]]
            moved = (numpy_helper.to_array(tensor).astype(np.int16) + 128).astype(np.uint8)
            name = f"{tensor.name}_unsigned"
            if name not in stored:
                stored[name] = numpy_helper.from_array(moved, name)
                model.graph.initializer.append(stored[name])
            node.input[place] = name
    target = folder.parent / "onnx-int8-unsigned"
    target.mkdir(exist_ok=True)
    onnx.save(model, target / "model.onnx")
    return target


@on_x86
@pytest.mark.parametrize(("kind", "precision"), KINDS)
def test_outputs_are_the_python_runtime_s(kind: str, precision: str, tmp_path: Path) -> None:
    job = job_for(kind, precision)
    found = run(job, "x86_64", tmp_path, logits=True)
    np.testing.assert_allclose(found["logits"], reference(job, kind, precision), atol=1e-5, rtol=0)
    del found["logits"], found["cut"]
    result = read_result(json.dumps(found), job, truncated=())
    assert result.runs.sentence == ORDER
    assert result.runs.tokenize_ms is None
    assert all(value > 0 for value in (*result.runs.inference_ms, result.cold_ms, result.load_ms))
    assert result.runtime.startswith("onnxruntime 1." if kind == "onnx" else "ai-edge-litert ")
    assert result.peak_memory_mb is not None and 1 < result.peak_memory_mb < 2000


@on_x86
@pytest.mark.parametrize(("kind", "precision"), KINDS)
def test_the_aarch64_bundle_gives_the_same_outputs(kind: str, precision: str, tmp_path: Path) -> None:
    job = job_for(kind, precision, order=(4, 0))
    found = run(job, "aarch64", tmp_path, qemu(), logits=True)
    np.testing.assert_allclose(found["logits"], reference(job, kind, precision, exact=True), atol=1e-5, rtol=0)


@on_x86
def test_failures_are_answers(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model")
    job = job_for("onnx", "fp32", model=str(tmp_path / "model.onnx"))
    found = run(job, "x86_64", tmp_path)
    with pytest.raises(DeviceError, match="could not run"):
        read_result(json.dumps(found), job)
    entry = job_for("onnx", "fp32").signatures[0]
    missing = EntryPoint(
        key=None, length=None, inputs={**entry.inputs, "input_ids": InputFeed(name="$(other) 'name\"", dtype="int64")}
    )
    job = job_for("onnx", "fp32", signatures=(missing,))
    found = run(job, "x86_64", tmp_path)
    assert found["error"]["type"] == "OrtError"
    assert "$(other) 'name\"" in found["error"]["message"]


@on_x86
def test_it_uses_only_the_cores_it_is_given(tmp_path: Path) -> None:
    assert "error" not in run(job_for("onnx", "fp32", cpus=(0,)), "x86_64", tmp_path)
    found = run(job_for("onnx", "fp32", cpus=(1000,)), "x86_64", tmp_path)
    assert "cannot be used" in found["error"]["message"]


def test_a_request_names_what_was_cut_and_refuses_line_breaks() -> None:
    job = job_for("onnx", "fp32", sentences=("where is my card " * 20,), order=(0, 0))
    text, cut = request_text(job)
    assert cut == (0,)
    assert "sentence 0 16 16\n" in text
    bad = EntryPoint(key="a\nthreads 9", length=None, inputs=job.signatures[0].inputs)
    with pytest.raises(ArtifactError, match="line break"):
        request_text(job.model_copy(update={"signatures": (bad,)}))


def test_no_compiler_and_no_such_architecture_say_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no native runner for riscv64"):
        native_bundle("riscv64", "onnxruntime", cache=tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert compiler("aarch64") is None
    with pytest.raises(DeviceError, match="no C compiler for aarch64") as caught:
        native_bundle("aarch64", "onnxruntime", cache=tmp_path)
    assert "gcc-aarch64-linux-gnu" in caught.value.remedy
    assert not list(tmp_path.glob("onnxruntime-*"))


def test_cmake_builds_the_runner(tmp_path: Path) -> None:
    import shutil

    from devices.runners.bundle import SOURCES

    if shutil.which("cmake") is None or compiler(platform.machine()) is None:
        pytest.skip("cmake or a C compiler is not installed (tests/system-packages.sh)")
    for command in (["cmake", "-S", str(SOURCES), "-B", str(tmp_path)], ["cmake", "--build", str(tmp_path)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "compressor-runner"], capture_output=True, check=False).returncode == 2
