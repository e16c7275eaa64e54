"""P32: an engine made for another GPU or TensorRT is refused before TensorRT is asked to load it."""

import json
from types import SimpleNamespace

import pytest

from compressor.core.hashing import sha256_file
from export.tensorrt.device.engine_check import BuildError, check_engine, load_engine, machine_facts, main
from tests.export.tensorrt.bindings import FakeCuda

ORIN = FakeCuda("Orin", (8, 7))


@pytest.fixture
def engine(tmp_path):
    """An engine folder as the build script leaves it on a Jetson Orin with TensorRT 10.3."""
    (tmp_path / "model.engine").write_bytes(b"engine")
    report = {
        "engine_sha256": sha256_file(tmp_path / "model.engine"),
        "built_with": machine_facts(SimpleNamespace(__version__="10.3.0"), ORIN),
    }
    (tmp_path / "engine.json").write_text(json.dumps(report))
    return tmp_path


def tensorrt(version, answer="engine"):
    """A TensorRT that remembers whether it was asked to load anything."""
    asked = []

    def deserialize_cuda_engine(content):
        asked.append(content)
        return answer

    runtime = SimpleNamespace(deserialize_cuda_engine=deserialize_cuda_engine)
    return SimpleNamespace(__version__=version, Runtime=lambda logger: runtime), asked


def test_it_loads_where_it_was_made(engine):
    trt, asked = tensorrt("10.3.0")
    assert load_engine(engine, trt, None, ORIN) == "engine"
    assert asked == [b"engine"]


@pytest.mark.parametrize(
    ("version", "cuda", "reason"),
    [
        ("10.7.0", ORIN, r"tensorrt 10.3.0 \(here: 10.7.0\)"),
        ("10.3.0", FakeCuda("NVIDIA GeForce RTX 4090", (8, 9)), r"gpu Orin \(here: NVIDIA GeForce RTX 4090\)"),
        ("10.3.0", FakeCuda("Orin", (8, 6)), r"compute capability 8.7 \(here: 8.6\)"),
        ("8.5.2", FakeCuda("Xavier", (7, 2)), "build it again on this machine"),
    ],
)
def test_another_machine_is_named_and_nothing_is_loaded(engine, version, cuda, reason):
    trt, asked = tensorrt(version)
    with pytest.raises(BuildError, match=reason):
        load_engine(engine, trt, None, cuda)
    assert asked == []


def test_a_damaged_or_missing_engine_is_not_loaded(engine, tmp_path):
    trt, asked = tensorrt("10.3.0")
    (engine / "model.engine").write_bytes(b"enginE")
    with pytest.raises(BuildError, match="SHA-256"):
        load_engine(engine, trt, None, ORIN)
    (engine / "engine.json").unlink()
    with pytest.raises(BuildError, match="build it with"):
        load_engine(engine, trt, None, ORIN)
    assert asked == []


def test_a_machine_without_a_gpu_takes_no_engine(engine):
    class NoDriver(FakeCuda):
        def cuInit(self, flags):
            return 100  # CUDA_ERROR_NO_DEVICE

    with pytest.raises(BuildError, match=r"gpu Orin \(here: None\)"):
        check_engine(engine, machine_facts(SimpleNamespace(__version__="10.3.0"), NoDriver()))


def test_the_command_says_so(engine, monkeypatch, caplog):
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", tensorrt("10.7.0")[0])
    assert main([str(engine)]) == 2
    assert "was made for" in caplog.text
