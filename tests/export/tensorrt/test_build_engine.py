"""The scripts that run on the device, against stand-ins that have what the real bindings of each version have."""

import ast
import json
import sys
from importlib.resources import files

import pytest

from compressor.core.hashing import sha256_file
from export.tensorrt.device import build_engine, engine_check
from tests.export.tensorrt.bindings import NORM, PRODUCT, TABLE, FakeCuda, stand_in

TYPED = {
    "model": "model.onnx",
    "oldest": [8, 6],
    "products": {"fp16": [PRODUCT]},
    "pinned": None,
}
WEAK = {
    "model": "model.trt8.onnx",
    "oldest": [8, 0],
    "products": {"fp16": [PRODUCT]},
    "pinned": {"fp32": [NORM], "fp16": [PRODUCT]},
}


def layer(kind, name=PRODUCT, **more):
    return {"Name": name, "LayerType": "gemm", "Inputs": [{"Format/Datatype": kind}], "Outputs": [], **more}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_check, "_cuda_library", FakeCuda)
    return write(tmp_path / "tensorrt-fp16")


def write(folder, *, precision="fp16", graphs=(TYPED, WEAK)):
    folder.mkdir(exist_ok=True)
    listed = []
    for graph in graphs:
        (folder / graph["model"]).write_bytes(graph["model"].encode())
        listed.append({**graph, "sha256": {graph["model"]: sha256_file(folder / graph["model"])}})
    settings = {
        "schema_version": 2,
        "graphs": listed,
        "inputs": ["input_ids", "attention_mask"],
        "profiles": [[1, 16, 16], [17, 32, 32]],
        "precision": precision,
    }
    (folder / "build.json").write_text(json.dumps(settings))
    return folder


def build(folder, monkeypatch, version, **options):
    module, seen, layers = stand_in(version, **options)
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    return build_engine.main(["--folder", str(folder)]), seen, layers


def engine_of(folder):
    return folder.with_name(f"{folder.name}-engine")


def outputs(folder):
    """Every file and folder that a build left, in the artifact and beside it."""
    given = {folder.name, "model.onnx", "model.trt8.onnx", "build.json"}
    return {file.name for file in folder.parent.rglob("*")} - given


@pytest.mark.parametrize(
    ("version", "model", "network_flags"),
    [
        ("8.0.1", "model.trt8.onnx", ["EXPLICIT_BATCH"]),
        ("8.2.1", "model.trt8.onnx", ["EXPLICIT_BATCH"]),
        ("8.5.2", "model.trt8.onnx", ["EXPLICIT_BATCH"]),
        ("8.6.1", "model.onnx", ["EXPLICIT_BATCH"]),
        ("10.0.1", "model.onnx", ["EXPLICIT_BATCH", "STRONGLY_TYPED"]),
        ("10.3.0", "model.onnx", ["EXPLICIT_BATCH", "STRONGLY_TYPED"]),
        ("11.4.0.106", "model.onnx", ["STRONGLY_TYPED"]),
    ],
)
def test_every_generation_builds_with_what_it_has(folder, monkeypatch, version, model, network_flags):
    weak = version.startswith("8")
    code, seen, layers = build(folder, monkeypatch, version, typed=model == "model.onnx")
    assert code == 0
    assert seen.model.endswith(model)
    members = TABLE.get(version, TABLE["8.6.1"])["enums"]["NetworkDefinitionCreationFlag"]
    assert seen.network_flags == sum(1 << members[name] for name in network_flags)
    flags = [flag.name for flag in seen.flags]
    obey = "STRICT_TYPES" if version == "8.0.1" else "OBEY_PRECISION_CONSTRAINTS"
    assert flags == (["FP16", obey] if weak else [])
    if weak:
        assert [getattr(item.precision, "name", None) for item in layers] == ["HALF", "FLOAT", None, None]
    assert (getattr(seen.config, "max_workspace_size", None) == 512 << 20) == (version in ("8.0.1", "8.2.1"))
    assert seen.profiles[1].get_shape("input_ids") == ((1, 17), (1, 32), (1, 32))
    report = json.loads((engine_of(folder) / "engine.json").read_text())
    assert report["onnx"] == model
    assert report["strongly_typed"] == (not weak)
    assert report["built_with"]["tensorrt"] == version
    assert report["built_with"]["gpu"] == "Orin"
    assert report["built_with"]["compute_capability"] == "8.7"
    assert report["built_with"]["cuda"] == "12.6"
    if version == "8.0.1":
        assert report["layers"] is None
        assert "not read" in report["proof"]
    else:
        assert report["proof"] == "1 of 1 matrix products are in layers of the stated type"
    assert (engine_of(folder) / "model.engine").read_bytes() == b"engine"


@pytest.mark.parametrize("version", ["8.6.1", "10.3.0", "11.4.0.106"])
def test_int8_takes_the_flag_only_where_the_network_is_weakly_typed(tmp_path, monkeypatch, version):
    monkeypatch.setattr(engine_check, "_cuda_library", FakeCuda)
    products = {"int8": [PRODUCT]}
    weak = {**WEAK, "products": products, "pinned": {"fp32": [NORM], "fp16": []}}
    folder = write(tmp_path / "a", precision="int8", graphs=[{**TYPED, "oldest": [10, 0], "products": products}, weak])
    code, seen, layers = build(folder, monkeypatch, version, layers=[layer("Int8")], typed=False)
    assert code == 0
    flags = [flag.name for flag in seen.flags]
    assert flags == (["FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS"] if version == "8.6.1" else [])
    if version == "8.6.1":
        assert [getattr(item.precision, "name", None) for item in layers] == [None, "FLOAT", None, None]


def test_a_gpu_without_int8_is_told_before_anything_is_built(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(engine_check, "_cuda_library", FakeCuda)
    folder = write(tmp_path / "a", precision="int8")
    code, seen, _ = build(folder, monkeypatch, "8.2.1", int8=False)
    assert code == 2
    assert "does not multiply in INT8" in caplog.text
    assert seen.model is None


def test_an_fp32_island_that_cannot_be_found_ends_the_build(folder, monkeypatch, caplog):
    write(folder, graphs=[{**WEAK, "pinned": {"fp32": ["/gone"], "fp16": []}}])
    code, _, _ = build(folder, monkeypatch, "8.5.2", typed=False)
    assert code == 2
    assert "no FP32 island can be kept" in caplog.text
    assert outputs(folder) == set()


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
    module, _, _ = stand_in("10.3.0")
    monkeypatch.setitem(sys.modules, "tensorrt", module)
    assert build_engine.main(["--folder", str(folder), "--output", str(folder)]) == 2
    assert "finished artifact" in caplog.text
    assert outputs(folder) == {"manifest.json"}


def test_the_timing_cache_is_used_again_on_the_same_machine_only(folder, monkeypatch):
    build(folder, monkeypatch, "10.3.0")
    assert build(folder, monkeypatch, "10.3.0")[1].cache == b"cache"
    assert build(folder, monkeypatch, "10.0.1")[1].cache == b""


def test_an_fp16_engine_without_half_layers_is_refused(folder, monkeypatch, caplog):
    code, _, _ = build(folder, monkeypatch, "10.3.0", layers=[layer("Float")])
    assert code == 2
    assert "0 of 1 matrix products" in caplog.text
    assert outputs(folder) == set()


def test_a_damaged_onnx_file_is_refused_before_it_is_read(folder, monkeypatch, caplog):
    (folder / "model.onnx").write_bytes(b"grapH")
    code, seen, _ = build(folder, monkeypatch, "10.3.0")
    assert code == 2
    assert "SHA-256" in caplog.text
    assert seen.model is None


def test_an_old_or_missing_tensorrt_is_named(folder, monkeypatch, caplog):
    write(folder, graphs=[TYPED])
    code, _, _ = build(folder, monkeypatch, "8.5.2")
    assert code == 2
    assert "expected 8.6 or later: convert again with the --device it is for" in caplog.text
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    assert build_engine.main(["--folder", str(folder)]) == 2
    assert "'tensorrt' is not here" in caplog.text
    assert outputs(folder) == set()


def test_the_parsers_own_words_are_passed_on(folder, monkeypatch, caplog):
    code, _, _ = build(folder, monkeypatch, "10.3.0", parses=False)
    assert code == 2
    assert "node 7 is unknown" in caplog.text


@pytest.mark.parametrize("name", ["build_engine.py", "engine_check.py"])
def test_the_scripts_are_written_for_the_python_of_jetpack_4(name):
    source = (files("export.tensorrt.device") / name).read_text()
    tree = ast.parse(source, feature_version=(3, 6))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "__future__" not in imported
    assert "dataclasses" not in imported
    for node in ast.walk(tree):  # what a later Python only allows at run time
        annotations = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        for annotation in filter(None, annotations):
            text = ast.unparse(annotation)
            assert "|" not in text, text
            assert not text.startswith(("list[", "dict[", "tuple[", "set[")), text
