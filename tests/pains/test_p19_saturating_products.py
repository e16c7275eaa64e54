"""P19: full-range u8s8 products saturate on x86 CPUs without VNNI; the file is made for its target and says so."""

import logging

import numpy as np
import onnx
import pytest

from compressor.quantize import levels
from compressor.quantize.levels import REDUCED_LEVELS, saturates
from compressor.quantize.plan import QuantizationPlan
from export.onnx import saturation
from export.onnx.backend import OnnxBackend
from export.onnx.saturation import METADATA_KEY
from tests.export.onnx.helpers import Source, io_for

X86_OLD = {"architecture": "x86_64", "cpu_features": "avx2", "cpu": "old"}
X86_NEW = {"architecture": "x86_64", "cpu_features": "avx2 avx512_vnni", "cpu": "new"}
ARM = {"architecture": "aarch64", "cpu_features": "asimddp", "cpu": "arm"}


def on(monkeypatch, machine):
    for module in (levels, saturation):
        monkeypatch.setattr(module, "machine", lambda: machine)


@pytest.mark.parametrize(("machine", "expected"), [(X86_OLD, True), (X86_NEW, False), (ARM, False)])
def test_only_x86_without_vnni_saturates(machine, expected):
    assert saturates(machine["architecture"], machine["cpu_features"].split()) is expected


@pytest.fixture
def source(checkpoint_of, tmp_path):
    made = Source(checkpoint_of("bert"))
    OnnxBackend().convert(made.model, made.spec, tmp_path)
    return made


def reduce(tmp_path, **plan):
    folder = tmp_path / "int8"
    folder.mkdir()
    OnnxBackend().reduce(tmp_path, folder, "int8", QuantizationPlan(**plan))
    graph = onnx.load(folder / "model.onnx").graph
    multiplied = {node.input[1] for node in graph.node if node.op_type == "MatMulInteger"}
    weights = [onnx.numpy_helper.to_array(x) for x in graph.initializer if x.name in multiplied]
    return folder, max(int(np.abs(x.astype(int)).max()) for x in weights if x.dtype == np.int8)


@pytest.mark.parametrize(
    ("machine", "reduced_range", "largest"),
    [(X86_OLD, None, 63), (X86_NEW, None, 127), (ARM, None, 127), (X86_NEW, True, 63), (X86_OLD, False, 127)],
)
def test_the_range_follows_the_plan_else_the_machine(source, tmp_path, monkeypatch, machine, reduced_range, largest):
    on(monkeypatch, machine)
    folder, found = reduce(tmp_path, reduced_range=reduced_range)
    assert found == largest
    fact = str(OnnxBackend().finish(folder, source.spec, "int8")["int8_products"])
    assert ("seven bits" in fact) == (largest == 63)
    assert METADATA_KEY not in OnnxBackend().finish(tmp_path, source.spec, "fp32")


def test_running_a_full_range_file_on_a_saturating_cpu_is_warned_of(source, tmp_path, monkeypatch, caplog):
    on(monkeypatch, X86_NEW)
    folder, _ = reduce(tmp_path)
    with caplog.at_level(logging.WARNING):
        OnnxBackend().open(folder, io_for(source.spec), threads=1)
        assert not caplog.messages
        on(monkeypatch, X86_OLD)
        OnnxBackend().open(folder, io_for(source.spec), threads=1)
    assert "saturates their products" in caplog.text


def test_two_products_of_the_reduced_range_fit_sixteen_bits():
    assert 2 * 255 * REDUCED_LEVELS < 2**15 <= 2 * 255 * 127


def test_the_reduced_range_is_right_on_every_cpu(source, tmp_path):
    folder, _ = reduce(tmp_path, reduced_range=True)
    assert source.signal_to_noise_db(OnnxBackend().open(folder, io_for(source.spec), threads=1)) > 20
