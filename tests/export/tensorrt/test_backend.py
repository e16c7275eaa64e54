"""The strongly typed ONNX file for TensorRT and what lies beside it."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest

from compressor.core.errors import StageError, UsageError
from compressor.core.hashing import sha256_file
from compressor.quantize.plan import QuantizationPlan
from export.backend import Backend
from export.tensorrt import engines
from export.tensorrt.backend import OPSET, TensorRTBackend
from tests.export.onnx.helpers import Source, io_for
from tests.export.tensorrt.text import calibration_of
from tests.models import FAMILIES

BACKEND = TensorRTBackend()


@pytest.fixture(scope="module")
def exported(checkpoint_of, tmp_path_factory):
    """Returns (source, {precision: folder}) of a family, made on first use."""
    made = {}

    def export(family):
        if family not in made:
            source = Source(checkpoint_of(family))
            folders = {name: tmp_path_factory.mktemp(f"trt-{family}-{name}") for name in ("fp32", "fp16", "int8")}
            BACKEND.convert(source.model, source.spec, folders["fp32"])
            for precision in ("fp16", "int8"):
                plan = QuantizationPlan(precision=precision)
                BACKEND.reduce(folders["fp32"], folders[precision], precision, plan, calibration_of(source))
            made[family] = (source, folders)
        return made[family]

    return export


def test_it_keeps_the_backend_contract():
    assert isinstance(BACKEND, Backend)


@pytest.mark.parametrize("family", FAMILIES)
def test_files_agree_with_pytorch(exported, family):
    source, folders = exported(family)
    for precision, tolerance in (("fp32", 1e-4), ("fp16", 1e-2)):
        predictor = BACKEND.open(folders[precision], io_for(source.spec), threads=1)
        assert source.relative_error(predictor) <= tolerance
    predictor = BACKEND.open(folders["int8"], io_for(source.spec), threads=1)
    assert source.signal_to_noise_db(predictor) > 15


def test_signatures_are_one_profile_a_length_with_int32_inputs(exported):
    _, folders = exported("bert")
    found = BACKEND.signatures(folders["fp16"])
    assert [(item.key, item.length) for item in found] == [("profile_0", 16), ("profile_1", 32), ("profile_2", 48)]
    assert {spec.dtype for item in found for spec in item.inputs} == {"int32"}
    assert [spec.shape for spec in found[1].inputs] == [(1, 32)] * 3
    assert [spec.shape for spec in found[1].outputs] == [(1, 3)]
    statistics = BACKEND.inspect(folders["fp16"] / "model.onnx")
    assert (statistics.format, statistics.precision, statistics.lengths) == ("tensorrt", "fp16", (16, 32, 48))
    assert statistics.opset == OPSET


def test_int8_needs_text_to_observe_ranges_on(exported, tmp_path):
    _, folders = exported("bert")
    with pytest.raises(UsageError, match="no text") as error:
        BACKEND.reduce(folders["fp32"], tmp_path, "int8", QuantizationPlan())
    assert "--calibrate" in error.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def finished(exported, tmp_path_factory):
    """A folder with its build files, made without TensorRT-RTX."""
    source, folders = exported("bert")
    folder = tmp_path_factory.mktemp("finished")
    (folder / "model.onnx").write_bytes((folders["fp16"] / "model.onnx").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "find_spec", lambda name: None)
        facts = BACKEND.finish(folder, source.spec, "fp16")
    return folder, facts


def test_finish_writes_build_files_bound_to_the_onnx_file(finished):
    folder, facts = finished
    settings = json.loads((folder / "build.json").read_text())
    (graph,) = settings["graphs"]
    assert graph["sha256"] == {"model.onnx": sha256_file(folder / "model.onnx")}
    assert (graph["oldest"], graph["pinned"], len(graph["products"]["fp16"])) == ([8, 6], None, 18)
    assert settings["profiles"] == [[1, 16, 16], [17, 32, 32], [33, 48, 48]]
    assert settings["inputs"] == ["input_ids", "attention_mask", "token_type_ids"]
    assert facts["opset"] == OPSET
    assert str(facts["rtx_plan"]).startswith("not built")
    assert str(facts["engine"]).startswith("not built")
    assert not (folder / "model.rtx.plan").exists()


FLAGS = {
    "8.6": (
        "[TensorRT_v8601] --fp16 --timingCacheFile --skipInference --layerPrecisions --exportLayerInfo",
        ["--fp16", "--skipInference"],
    ),
    "10.3": ("[TensorRT_v100300] --stronglyTyped --fp16 --skipInference", ["--stronglyTyped", "--skipInference"]),
    "11.4": ("[TensorRT_v110400] --buildOnly", ["--buildOnly"]),
}


@pytest.mark.parametrize("version", FLAGS)
def test_the_shell_script_uses_what_this_trtexec_knows(finished, tmp_path, version):
    folder, _ = finished
    known, expected = FLAGS[version]
    trtexec = tmp_path / "trtexec"
    trtexec.write_text(
        f"""#!/bin/sh
if [ "$1" = "--help" ]; then printf '  %s\\n' {known} | tr _ ' '
else
  printf '%s\\n' "$@" > "{tmp_path}/arguments"
  for item in "$@"; do case "$item" in --saveEngine=*) printf engine > "${{item#--saveEngine=}}";; esac; done
fi
"""
    )
    trtexec.chmod(0o755)
    artifact = Path(shutil.copytree(folder, tmp_path / "a" / "tensorrt fp16"))
    (artifact / "manifest.json").write_text("{}")
    before = {file.name: file.read_bytes() for file in artifact.iterdir()}
    done = subprocess.run(
        ["bash", str(artifact / "build_engine.sh")], env={"TRTEXEC": str(trtexec), "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == 0
    assert {file.name: file.read_bytes() for file in artifact.iterdir()} == before
    engine = tmp_path / "a" / "tensorrt fp16-engine"
    assert (engine / "model.engine").read_bytes() == b"engine"
    report = json.loads((engine / "engine.json").read_text())
    assert report["artifact"] == {"name": artifact.name, "manifest_sha256": sha256_file(artifact / "manifest.json")}
    assert report["onnx_sha256"] == {"model.onnx": sha256_file(artifact / "model.onnx")}
    assert report["engine_sha256"] == sha256_file(engine / "model.engine")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert [item for item in arguments if item in expected] == expected
    assert ("--fp16" in arguments) == (version == "8.6")
    assert (f"--timingCacheFile={engine}/timing.cache" in arguments) == (version == "8.6")
    assert "--minShapes=input_ids:1x1,attention_mask:1x1,token_type_ids:1x1" in arguments
    assert "--maxShapes=input_ids:1x48,attention_mask:1x48,token_type_ids:1x48" in arguments


def test_the_shell_script_refuses_a_damaged_file(finished, tmp_path):
    folder, _ = finished
    trtexec = tmp_path / "trtexec"
    trtexec.write_text("#!/bin/sh\necho '[TensorRT v8601]'\n")
    trtexec.chmod(0o755)
    for name in ("build_engine.sh", "model.onnx"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "model.onnx").open("ab") as stream:
        stream.write(b"x")
    done = subprocess.run(
        ["bash", str(tmp_path / "build_engine.sh")], check=False, capture_output=True, text=True,
        env={"TRTEXEC": str(trtexec), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode != 0
    assert "checksum did NOT match" in done.stderr
    assert not (tmp_path / "model.engine").exists()


needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="the extra 'rtx' (tensorrt-rtx-cu12) is not installed"
)


@needs_rtx
def test_a_real_rtx_plan_computes_every_gemm_in_half(exported, tmp_path):
    _, folders = exported("albert")
    (tmp_path / "model.onnx").write_bytes((folders["fp16"] / "model.onnx").read_bytes())
    profiles = BACKEND.signatures(folders["fp16"])
    facts = engines.build_rtx_plan(
        tmp_path / "model.onnx", [engines.Profile(1, item.length, item.length) for item in profiles], "fp16"
    )
    assert (tmp_path / "model.rtx.plan").stat().st_size == facts["size_bytes"]
    assert facts["gemm_types"].keys() == {"Half"}
    assert facts["profile"] == [1, 32, 48]
    report = json.loads((tmp_path / "rtx_layers.json").read_text())
    assert any(layer["kind"] == "gemm" and layer["inputs"][0] == "Half" for layer in report["layers"])


@needs_rtx
def test_a_real_rtx_plan_computes_int8_where_the_graph_says_so(exported, tmp_path):
    _, folders = exported("albert")
    shutil.copyfile(folders["int8"] / "model.onnx", tmp_path / "model.onnx")
    facts = engines.build_rtx_plan(tmp_path / "model.onnx", [engines.Profile(1, 32, 48)], "int8")
    assert facts["gemm_types"].keys() == {"Int8", "Half"}
    assert "15 of 15 int8 products" in facts["proof"]
    assert "4 of 4 fp16 products" in facts["proof"]


SHELL = """#!/bin/sh
if [ "$1" = "--help" ]; then echo "&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] --fp16 --int8 {known}"
else
  printf '%s\\n' "$@" > arguments
  for item in "$@"; do case "$item" in --saveEngine=*) printf engine > "${{item#--saveEngine=}}";; esac; done
fi
"""


@pytest.mark.parametrize(
    ("version", "model", "pins"), [("8205", "model.trt8.onnx", False), ("8503", "model.trt8.onnx", True)]
)
def test_boards_with_tensorrt_8_get_their_own_graph(exported, tmp_path, monkeypatch, version, model, pins):
    source, _ = exported("bert")
    spec = source.spec.model_copy(update={"tensorrt": "8.0 - 10.3"})
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    folders = [tmp_path / name for name in ("fp32", "fp16")]
    for folder in folders:
        folder.mkdir()
    BACKEND.convert(source.model, spec, folders[0])
    BACKEND.reduce(*folders, "fp16", QuantizationPlan(precision="fp16"))
    facts = BACKEND.finish(folders[1], spec, "fp16")
    assert facts["tensorrt"] == "model.onnx from 8.6, model.trt8.onnx from 8.0"
    trtexec = tmp_path / "trtexec"
    trtexec.write_text(SHELL.format(version=version, known="--layerPrecisions" if pins else ""))
    trtexec.chmod(0o755)
    done = subprocess.run(
        ["bash", str(folders[1] / "build_engine.sh")], check=False, capture_output=True, text=True,
        env={"TRTEXEC": str(trtexec), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    arguments = (folders[1] / "arguments").read_text()
    assert f"--onnx={model}" in arguments
    assert "--fp16\n" in arguments
    assert ("--precisionConstraints=obey" in arguments) == pins
    assert ("/LayerNormalization/Sqrt_5:fp32," in arguments) == pins
    assert ("may become half" in done.stderr) != pins


@needs_rtx
def test_a_graph_that_does_not_build_leaves_nothing(tmp_path):
    node = onnx.helper.make_node("NoSuchOperator", ["input_ids"], ["logits"])
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT32, [1, "tokens"])],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 3])],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "model.onnx")
    with pytest.raises(StageError, match="NoSuchOperator"):
        engines.build_rtx_plan(tmp_path / "model.onnx", [engines.Profile(1, 16, 16)], "fp16")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("name", ["build_engine.py", "engine_check.py"])
def test_python_scripts_are_those_that_build_here_and_run_alone(finished, tmp_path, name):
    folder, _ = finished
    source = Path(engines.__file__).parent / "device" / name
    assert (folder / name).read_bytes() == source.read_bytes()
    # A board has neither this package nor anything beyond the standard library.
    command = [sys.executable, "-E", "-S", str(folder / name), "--help"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


class NoLibraries:
    """An import hook for a package that is there while its native libraries are not."""

    def find_spec(self, name, path=None, target=None):
        if name == "tensorrt":
            raise ImportError("libnvinfer.so.10: cannot open shared object file")


@pytest.mark.parametrize(("damage", "reason"), [("old", "8.6 or later"), ("libraries", "libnvinfer")])
def test_a_tensorrt_that_cannot_build_does_not_end_the_export(finished, monkeypatch, damage, reason):
    folder, _ = finished
    monkeypatch.setattr(engines, "find_spec", lambda name: object())
    monkeypatch.setattr(engines, "_DRIVER", folder / "build.json")
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    if damage == "old":
        monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__="8.5.2"))
    else:
        monkeypatch.setattr(sys, "meta_path", [NoLibraries(), *sys.meta_path])
    before = {file.name for file in folder.iterdir()}
    fact = str(engines.build_engine_here(folder)["engine"])
    assert fact.startswith("not built: ")
    assert reason in fact
    assert {file.name for file in folder.iterdir()} == before
