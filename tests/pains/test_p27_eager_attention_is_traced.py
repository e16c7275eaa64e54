"""P27: masks made for other attention kernels break tracing; eager attention is traced, whatever a config asks for."""

import json
import shutil

import numpy as np
import onnx
import pytest

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import UsageError
from export.onnx.backend import OnnxBackend
from tests.export.onnx.helpers import Source, io_for


@pytest.fixture(scope="module", params=["sdpa", "flash_attention_2"])
def exported(request, checkpoint_of, tmp_path_factory):
    """A checkpoint whose config names another attention implementation, and its graph."""
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / "model"
    shutil.copytree(checkpoint_of("bert").path, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "_attn_implementation": request.param}))
    source = Source(Checkpoint.open(model))
    OnnxBackend().convert(source.model, source.spec, folder)
    return source, folder


def test_each_layer_has_its_softmax(exported):
    source, folder = exported
    operators = [node.op_type for node in onnx.load(folder / "model.onnx").graph.node]
    assert operators.count("Softmax") == source.model.config.num_hidden_layers
    assert source.relative_error(OnnxBackend().open(folder, io_for(source.spec), threads=1)) <= 1e-4


def test_the_mask_is_an_input_that_counts(exported):
    source, folder = exported
    predictor = OnnxBackend().open(folder, io_for(source.spec), threads=1)
    batch = source.batches()[-1]
    unmasked = predictor.logits({**batch, "attention_mask": np.ones_like(batch["attention_mask"])})
    assert np.abs(unmasked - predictor.logits(batch)).max() > 1e-3
    with pytest.raises(UsageError, match="attention_mask"):
        predictor.logits({name: array for name, array in batch.items() if name != "attention_mask"})
