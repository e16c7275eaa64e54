"""The strongly typed ONNX file for TensorRT and what lies beside it."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from compressor.core.artifact import PRECISIONS
from compressor.core.errors import IllegalOnDeviceError, StageError
from compressor.core.hashing import sha256_file
from compressor.quantize.plan import QuantizationPlan
from export.backend import Backend
from export.tensorrt import engines
from export.tensorrt.backend import OPSET, TensorRTBackend
from tests.export.onnx.helpers import Source, io_for
from tests.models import FAMILIES

BACKEND = TensorRTBackend()


@pytest.fixture(scope="module")
def exported(checkpoint_of, tmp_path_factory):
    """Returns (source, {precision: folder}) of a family, made on first use."""
    made = {}

    def export(family):
        if family not in made:
            source = Source(checkpoint_of(family))
            folders = {name: tmp_path_factory.mktemp(f"trt-{family}-{name}") for name in ("fp32", "fp16")}
            BACKEND.convert(source.model, source.spec, folders["fp32"])
            BACKEND.reduce(folders["fp32"], folders["fp16"], "fp16", QuantizationPlan(precision="fp16"))
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


def test_int8_is_refused_with_the_reason(exported, tmp_path):
    _, folders = exported("bert")
    with pytest.raises(IllegalOnDeviceError, match="static") as error:
        BACKEND.reduce(folders["fp32"], tmp_path, "int8", QuantizationPlan())
    assert "fp16" in error.value.remedy
    assert [precision for precision in PRECISIONS if BACKEND.offers(precision)] == ["fp32", "fp16"]


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
    assert settings["sha256"] == {"model.onnx": sha256_file(folder / "model.onnx")}
    assert settings["profiles"] == [[1, 16, 16], [17, 32, 32], [33, 48, 48]]
    assert settings["inputs"] == ["input_ids", "attention_mask", "token_type_ids"]
    assert facts["opset"] == OPSET
    assert str(facts["rtx_plan"]).startswith("not built")
    assert str(facts["engine"]).startswith("not built")
    assert not (folder / "model.rtx.plan").exists()


FLAGS = {
    "8.6": (
        "--fp16 --timingCacheFile --skipInference",
        ["--fp16", "--skipInference"],
    ),
    "10.3": ("--stronglyTyped --fp16 --skipInference", ["--stronglyTyped", "--skipInference"]),
    "11.4": ("--skipInference", ["--skipInference"]),
}


@pytest.mark.parametrize("version", FLAGS)
def test_the_shell_script_uses_what_this_trtexec_knows(finished, tmp_path, version):
    folder, _ = finished
    known, expected = FLAGS[version]
    trtexec = tmp_path / "trtexec"
    trtexec.write_text(
        f"""#!/bin/sh
if [ "$1" = "--help" ]; then printf '  %s\\n' {known}
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
    for name in ("build_engine.sh", "model.onnx"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with (tmp_path / "model.onnx").open("ab") as stream:
        stream.write(b"x")
    done = subprocess.run(
        ["bash", str(tmp_path / "build_engine.sh")], env={"TRTEXEC": "true", "PATH": "/usr/bin:/bin"}, check=False,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode != 0
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


def test_python_script_is_the_one_that_builds_here(finished):
    folder, _ = finished
    source = Path(engines.__file__).parent / "device" / "build_engine.py"
    assert (folder / "build_engine.py").read_bytes() == source.read_bytes()
    assert np.all([word not in source.read_text() for word in ("import compressor", "import export", "numpy")])


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
