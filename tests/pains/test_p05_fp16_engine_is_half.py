"""P05: an FP16 engine is FP16 because its graph and its built layers say so, never because it was asked for."""

import pytest

from compressor.core.errors import StageError
from compressor.quantize.plan import QuantizationPlan
from export.tensorrt.backend import TensorRTBackend
from export.tensorrt.engines import check_layers
from export.tensorrt.layers import BuiltLayer
from tests.export.onnx.helpers import Source


def gemm(dtype):
    return BuiltLayer(
        name=f"{dtype} gemm",
        kind="gemm",
        inputs=(dtype,),
        weights=(dtype,),
        outputs=(dtype,),
        onnx_nodes=("/q/MatMul",),
    )


@pytest.fixture(scope="module")
def models(checkpoint_of, tmp_path_factory):
    source, backend = Source(checkpoint_of("bert")), TensorRTBackend()
    folders = {name: tmp_path_factory.mktemp(name) for name in ("fp32", "fp16")}
    backend.convert(source.model, source.spec, folders["fp32"])
    backend.reduce(folders["fp32"], folders["fp16"], "fp16", QuantizationPlan())
    return {name: folder / "model.onnx" for name, folder in folders.items()}


def test_the_graph_itself_is_half(models):
    assert set(TensorRTBackend().inspect(models["fp16"]).gemm_types) == {"fp16"}
    assert set(TensorRTBackend().inspect(models["fp32"]).gemm_types) == {"fp32"}


def test_an_engine_with_one_float_gemm_is_refused(models):
    check_layers((gemm("Half"), gemm("Half")), models["fp16"])
    with pytest.raises(StageError, match="1 GEMM layers of the FP16 engine are not Half, first 'Float gemm'"):
        check_layers((gemm("Half"), gemm("Float")), models["fp16"])


def test_an_fp32_engine_may_be_float(models):
    check_layers((gemm("Float"),), models["fp32"])
