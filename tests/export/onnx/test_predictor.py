"""Feeding by name: zeros for what is missing, nothing for what is not taken."""

import numpy as np
import pytest

from compressor.core.errors import ArtifactError
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from export.onnx.predictor import OnnxPredictor
from export.onnx.signatures import read_signature
from tests.export.onnx.helpers import text_model, write

IDS = np.array([[1, 2, 3], [4, 5, 6]])

THREE = """m (int64[batch,tokens] input_ids, int64[batch,tokens] attention_mask, int64[batch,tokens] token_type_ids)
    => (float[batch,tokens] logits) {
    hundred = Constant<value = int64 {100}>()
    types = Mul(token_type_ids, hundred)
    masked = Mul(input_ids, attention_mask)
    total = Add(masked, types)
    logits = Cast<to = 1>(total)
}"""
TWO = """m (int64[batch,tokens] attention_mask, int64[batch,tokens] input_ids) => (float[batch,tokens] logits) {
    masked = Mul(input_ids, attention_mask)
    logits = Cast<to = 1>(masked)
}"""


def test_missing_token_types_are_zeros_and_given_ones_are_used(tmp_path):
    predictor = OnnxPredictor(write(text_model(THREE), tmp_path / "m.onnx"), threads=1)
    batch = {INPUT_IDS: IDS, ATTENTION_MASK: np.ones_like(IDS)}
    assert predictor.logits(batch).tolist() == IDS.tolist()
    with_types = predictor.logits({**batch, TOKEN_TYPE_IDS: np.ones_like(IDS)})
    assert with_types.tolist() == (IDS + 100).tolist()


def test_what_the_graph_does_not_take_is_dropped(tmp_path):
    predictor = OnnxPredictor(write(text_model(TWO), tmp_path / "m.onnx"), threads=1)
    batch = {INPUT_IDS: IDS, ATTENTION_MASK: np.ones_like(IDS), TOKEN_TYPE_IDS: IDS}
    assert predictor.logits(batch).tolist() == IDS.tolist()
    assert predictor.logits(batch).dtype == np.float32


def test_int32_graphs_with_a_batch_of_one_take_any_batch(tmp_path):
    text = THREE.replace("int64[batch,tokens]", "int32[1,tokens]").replace("batch", "1").replace("int64 {", "int32 {")
    predictor = OnnxPredictor(write(text_model(text), tmp_path / "m.onnx"), threads=1, fixed_batch=1)
    assert predictor.logits({INPUT_IDS: IDS, ATTENTION_MASK: np.ones_like(IDS)}).tolist() == IDS.tolist()


def test_a_file_that_is_no_model_is_named(tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"nothing")
    with pytest.raises(ArtifactError, match=r"m\.onnx"):
        OnnxPredictor(tmp_path / "m.onnx", threads=1)


def test_a_signature_with_foreign_inputs_is_refused():
    with pytest.raises(ArtifactError, match="pixels"):
        read_signature(text_model("m (float[N] pixels) => (float[N] y) { y = Relu(pixels) }"))
