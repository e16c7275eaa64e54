"""P25: DeBERTa's relative positions must follow the length, also where the checkpoint is stored in half precision."""

import pytest
import torch

from compressor.core.checkpoint import Checkpoint
from compressor.models import load_compressed
from compressor.quantize.plan import QuantizationPlan
from export.onnx.backend import OnnxBackend
from tests.export.onnx.helpers import Source, io_for
from tests.models import tiny_checkpoint


@pytest.fixture(scope="module")
def half_stored(tmp_path_factory):
    """A DeBERTa whose weights file holds float16, as many on the hub do."""
    folder = tmp_path_factory.mktemp("deberta")
    tiny_checkpoint("deberta-v2", folder)
    load_compressed(folder).half().save_pretrained(folder)
    return Source(Checkpoint.open(folder))


@pytest.fixture(scope="module")
def converted(half_stored, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp32")
    OnnxBackend().convert(half_stored.model, half_stored.spec, folder)
    return folder


def test_a_checkpoint_stored_in_half_is_exported_in_full(half_stored, converted):
    assert '"float16"' in (half_stored.checkpoint.path / "config.json").read_text()
    assert {parameter.dtype for parameter in half_stored.model.parameters()} == {torch.float32}
    assert OnnxBackend().inspect(converted / "model.onnx").precision == "fp32"


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp16", 1e-2)])
def test_parity_at_several_lengths_and_batch_sizes(half_stored, converted, tmp_path, precision, tolerance):
    shapes = {batch["input_ids"].shape for batch in half_stored.batches()}
    assert len({rows for rows, _ in shapes}) >= 2
    assert len({tokens for _, tokens in shapes}) >= 2
    OnnxBackend().reduce(converted, tmp_path, precision, QuantizationPlan())
    predictor = OnnxBackend().open(tmp_path, io_for(half_stored.spec), threads=1)
    assert half_stored.relative_error(predictor) <= tolerance
