"""P01, P03: layers that were made to share, and thin embeddings, have one copy in every file."""

import onnx
import pytest

from compressor.core.checkpoint import Checkpoint
from compressor.families import adapter_for
from compressor.models import load_compressed, save_checkpoint, unique_parameters
from compressor.prune.surgery import keep_heads, keep_neurons
from compressor.quantize.plan import QuantizationPlan
from compressor.shapes import replace_word_embedding, shape_of
from compressor.share.embedding import factorized
from compressor.share.layers import share_layers
from compressor.text import SentenceEncoder
from export.onnx.backend import OnnxBackend
from export.onnx.predictor import OnnxPredictor
from export.tensorrt.backend import TensorRTBackend
from export.tflite.flatbuffer import LOOKUPS, read, weight_uses
from export.tflite.modules import load_modules
from tests.export.onnx.helpers import Source
from tests.export.tflite.samples import BACKEND, Sample
from tests.models import FAMILIES, tiny_checkpoint
from tests.pains.test_p01_albert_stays_shared import stored_bytes


def shrunk(family, folder, *, depth=4, groups=None):
    """Two groups of layers that store one set of weights each, unevenly pruned, with thin embeddings."""
    source = tiny_checkpoint(family, folder / "source", layers=depth)
    model = load_compressed(source)
    adapter = adapter_for(model.config)
    if not adapter.shares_layers:
        share_layers(model, groups or tuple(2 * index // depth for index in range(depth)), init="mean")
    size = shape_of(model).head_size
    for place, layer in enumerate(adapter.stored_layers(model).values()):
        keep_heads(adapter, layer, range(3 - place), head_size=size)
        for wide, narrow in adapter.feed_forwards(layer):
            keep_neurons(wide, narrow, range(40 + 8 * place))
    replace_word_embedding(adapter, model, factorized(adapter.word_embedding(model), 8)[0])
    save_checkpoint(model, source.path, folder / "made")
    return Checkpoint.open(folder / "made")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_exports_uneven_shared_layers_to_onnx_with_parity_and_one_copy(family, tmp_path):
    source = Source(shrunk(family, tmp_path, depth=3, groups=(0, 1, 0)))
    output = tmp_path / "fp32"
    output.mkdir()
    OnnxBackend().convert(source.model, source.spec, output)
    assert source.relative_error(OnnxPredictor(output / "model.onnx", threads=1)) < 1e-4
    parameters = 4 * unique_parameters(source.model)
    # Position ids and masks come on top; a second copy of anything would be as large as a layer.
    assert stored_bytes(output / "model.onnx") < 1.1 * parameters


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_depth_adds_no_weights_in_reduced_precision(precision, tmp_path):
    sizes = {}
    for depth in (2, 6):
        source = Source(shrunk("bert", tmp_path / str(depth), depth=depth))
        for name in ("fp32", precision):
            (tmp_path / f"{depth}-{name}").mkdir()
        OnnxBackend().convert(source.model, source.spec, tmp_path / f"{depth}-fp32")
        OnnxBackend().reduce(
            tmp_path / f"{depth}-fp32", tmp_path / f"{depth}-{precision}", precision, QuantizationPlan()
        )
        sizes[depth] = stored_bytes(tmp_path / f"{depth}-{precision}" / "model.onnx")
        found = OnnxBackend().inspect(tmp_path / f"{depth}-{precision}" / "model.onnx")
        assert found.gemm_types[precision] > 0
    assert sizes[6] == sizes[2]


def test_the_tflite_file_holds_one_copy_and_answers_alike(tmp_path):
    """Two depths read one layer; the backend itself refuses a file that is larger than its unique parameters."""
    checkpoint = shrunk("bert", tmp_path, depth=2, groups=(0, 0))
    model, source = load_compressed(checkpoint), Source(checkpoint)
    spec = source.spec.model_copy(update={"lengths": (8,), "max_tokens": 8})
    made = Sample(tmp_path, model, spec, SentenceEncoder.load(checkpoint.path, max_tokens=8))
    made.fp32.mkdir()
    BACKEND.convert(model, spec, made.fp32)
    assert made.error(made.fp32) <= 1e-4
    converted = read(made.fp32 / "model.tflite")
    readers = [use for use in weight_uses(converted) if use.name not in LOOKUPS]
    inner = {"query", "key", "value", "dense"}
    modules = load_modules(converted)
    shared = [use.buffer for use in readers if modules.weights[use.buffer].rpartition(".")[2] in inner]
    assert len(shared) == 2 * 6 + 1  # six products a depth, and the pooler
    assert len(set(shared)) == 6 + 1


def test_depth_adds_no_weights_for_tensorrt(tmp_path):
    backend, sizes = TensorRTBackend(), {}
    for depth in (2, 6):
        source = Source(shrunk("bert", tmp_path / str(depth), depth=depth))
        whole = tmp_path / f"{depth}-fp32"
        whole.mkdir()
        backend.convert(source.model, source.spec, whole)
        for precision in ("fp16", "int8"):
            reduced = tmp_path / f"{depth}-{precision}"
            reduced.mkdir()
            plan = QuantizationPlan(precision=precision)
            backend.reduce(whole, reduced, precision, plan, source.calibration())
            sizes[depth, precision] = sum(item.nbytes for item in matrices(reduced / "model.onnx"))
    assert sizes[6, "fp16"] == sizes[2, "fp16"]
    assert sizes[6, "int8"] == sizes[2, "int8"]


def matrices(path):
    """Stored weight matrices; scales of activations differ with depth."""
    stored = (onnx.numpy_helper.to_array(item) for item in onnx.load(path).graph.initializer)
    return [item for item in stored if item.ndim > 1]
