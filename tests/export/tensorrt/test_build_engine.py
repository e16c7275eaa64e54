"""The script that runs on the device, against stand-ins for each generation of TensorRT."""

import json
import sys
from types import SimpleNamespace

import pytest

from compressor.core.hashing import sha256_file
from export.tensorrt.device import build_engine


class Layer:
    def __init__(self, kind, dtype, shape_tensor=False):
        self.type, self.precision, self.output_type = kind, None, None
        self._output = SimpleNamespace(dtype=dtype, is_shape_tensor=shape_tensor)

    def get_output(self, index):
        return self._output

    def set_output_type(self, index, dtype):
        self.output_type = dtype


def fake_tensorrt(version, *, layer_type="Half", parses=True):
    """A module with the enums of one version; ``seen`` collects what the builder was told."""
    seen = SimpleNamespace(flags=[], profiles=[], network_flags=None, cache=None)
    layers = [
        Layer("MATMUL", "HALF"),
        Layer("NORM", "FLOAT"),
        Layer("CONSTANT", "HALF"),
        Layer("GATHER", "INT32", True),
    ]
    inputs = [SimpleNamespace(name="input_ids"), SimpleNamespace(name="attention_mask")]
    major = int(version.split(".")[0])

    class Logger:
        ERROR, INTERNAL_ERROR = "error", "internal"

        def __init__(self):
            pass

    class Config:
        def set_flag(self, flag):
            seen.flags.append(flag)

        def add_optimization_profile(self, profile):
            seen.profiles.append(profile)

        def create_timing_cache(self, data):
            seen.cache = data
            return SimpleNamespace(serialize=lambda: b"cache")

        def set_timing_cache(self, cache, ignore):
            pass

    class Profile(dict):
        def set_shape(self, name, *shapes):
            self[name] = shapes

    class Builder:
        def __init__(self, logger):
            pass

        def create_network(self, flags):
            seen.network_flags = flags
            return SimpleNamespace(
                num_layers=len(layers), get_layer=layers.__getitem__, num_inputs=2, get_input=inputs.__getitem__
            )

        create_builder_config = staticmethod(Config)
        create_optimization_profile = staticmethod(Profile)

        def build_serialized_network(self, network, config):
            return b"engine"

    class Parser:
        num_errors = 1

        def __init__(self, network, logger):
            pass

        def parse_from_file(self, path):
            return parses

        def get_error(self, index):
            return "node 7 is unknown"

    class Runtime:
        def __init__(self, logger):
            pass

        def deserialize_cuda_engine(self, data):
            report = json.dumps({"Layers": [{"Name": "gemm", "Inputs": [{"Format/Datatype": layer_type}]}]})
            inspector = SimpleNamespace(get_engine_information=lambda format: report)
            return SimpleNamespace(create_engine_inspector=lambda: inspector)

    creation = {"EXPLICIT_BATCH": 0} if major < 11 else {}
    builder_flags = {"FP16": "fp16", "OBEY_PRECISION_CONSTRAINTS": "obey"} if major < 11 else {}
    if major >= 10:
        creation["STRONGLY_TYPED"] = 1
    module = SimpleNamespace(
        __version__=version,
        ILogger=Logger,
        Builder=Builder,
        OnnxParser=Parser,
        Runtime=Runtime,
        ProfilingVerbosity=SimpleNamespace(DETAILED="detailed"),
        LayerInformationFormat=SimpleNamespace(JSON="json"),
        NetworkDefinitionCreationFlag=SimpleNamespace(**creation),
        BuilderFlag=SimpleNamespace(**builder_flags),
        LayerType=SimpleNamespace(CONSTANT="CONSTANT", SHAPE="SHAPE"),
        DataType=SimpleNamespace(HALF="HALF", FLOAT="FLOAT"),
    )
    return module, seen, layers


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "tensorrt-fp16"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    settings = {
        "model": "model.onnx",
        "sha256": {"model.onnx": sha256_file(folder / "model.onnx")},
        "inputs": ["input_ids", "attention_mask"],
        "profiles": [[1, 16, 16], [17, 32, 32]],
        "precision": "fp16",
    }
    (folder / "build.json").write_text(json.dumps(settings))
    return folder


def build(folder, monkeypatch, version, **options):
    module, seen, layers = fake_tensorrt(version, **options)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    return build_engine.main(["--folder", str(folder)]), seen, layers


def engine_of(folder):
    return folder.with_name(f"{folder.name}-engine")


@pytest.mark.parametrize(("version", "network_flags"), [("8.6.1", 1), ("10.3.0", 3), ("11.4.0", 2)])
def test_every_generation_builds_with_its_own_typing(folder, monkeypatch, version, network_flags):
    code, seen, layers = build(folder, monkeypatch, version)
    assert code == 0
    assert seen.network_flags == network_flags
    weak = version.startswith("8.6")
    assert seen.flags == (["fp16", "obey"] if weak else [])
    assert [layer.precision for layer in layers] == (["HALF", "FLOAT", None, None] if weak else [None] * 4)
    assert seen.profiles[1]["input_ids"] == ((1, 17), (1, 32), (1, 32))
    report = json.loads((engine_of(folder) / "engine.json").read_text())
    assert report["tensorrt"] == version
    assert report["strongly_typed"] == (not weak)
    assert report["layers"][0]["Name"] == "gemm"
    assert (engine_of(folder) / "model.engine").read_bytes() == b"engine"


def test_the_artifact_stays_as_it_was_and_its_identity_goes_with_the_engine(folder, monkeypatch):
    (folder / "manifest.json").write_text("{}")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    code, _, _ = build(folder, monkeypatch, "10.3.0")
    assert code == 0
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    assert {file.name for file in engine_of(folder).iterdir()} == {"model.engine", "engine.json", "timing.cache"}
    report = json.loads((engine_of(folder) / "engine.json").read_text())
    assert report["artifact"] == {"name": "tensorrt-fp16", "manifest_sha256": sha256_file(folder / "manifest.json")}
    assert report["onnx_sha256"] == {"model.onnx": sha256_file(folder / "model.onnx")}


def test_no_engine_is_written_into_a_finished_artifact(folder, monkeypatch, caplog):
    (folder / "manifest.json").write_text("{}")
    module, _, _ = fake_tensorrt("10.3.0")
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    assert build_engine.main(["--folder", str(folder), "--output", str(folder)]) == 2
    assert "finished artifact" in caplog.text
    assert outputs(folder) == {"manifest.json"}


def test_the_timing_cache_is_used_again(folder, monkeypatch):
    build(folder, monkeypatch, "10.3.0")
    _, seen, _ = build(folder, monkeypatch, "10.3.0")
    assert seen.cache == b"cache"


def outputs(folder):
    """Every file and folder that a build left, in the artifact and beside it."""
    return {file.name for file in folder.parent.rglob("*")} - {folder.name, "model.onnx", "build.json"}


def test_an_fp16_engine_without_half_layers_is_refused(folder, monkeypatch, caplog):
    code, _, _ = build(folder, monkeypatch, "10.3.0", layer_type="Float")
    assert code == 2
    assert "no half-precision layer" in caplog.text
    assert outputs(folder) == set()


def test_a_damaged_onnx_file_is_refused_before_tensorrt_is_asked(folder, monkeypatch, caplog):
    (folder / "model.onnx").write_bytes(b"grapH")
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert build_engine.main(["--folder", str(folder)]) == 2
    assert "SHA-256" in caplog.text


def test_an_old_or_missing_tensorrt_is_named(folder, monkeypatch, caplog):
    code, _, _ = build(folder, monkeypatch, "8.5.2")
    assert code == 2
    assert "8.6 or later" in caplog.text
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert build_engine.main(["--folder", str(folder)]) == 2
    assert "'tensorrt' is not here" in caplog.text
    assert outputs(folder) == set()


def test_the_parsers_own_words_are_passed_on(folder, monkeypatch, caplog):
    code, _, _ = build(folder, monkeypatch, "10.3.0", parses=False)
    assert code == 2
    assert "node 7 is unknown" in caplog.text
