"""P03: a head tied to the embeddings is their transpose, which a search for equal bytes does not see."""

from types import SimpleNamespace

import numpy as np
import onnx
import torch
from torch import nn

from export.backend import ConversionSpec
from export.onnx.backend import OnnxBackend
from export.onnx.predictor import OnnxPredictor

WORDS, WIDTH = 700, 32
SPEC = ConversionSpec(
    lengths=(8,), max_tokens=8, takes_token_types=False, pad_id=0, num_labels=WORDS, model_type="bert"
)


class Tied(nn.Module):
    """Predicts words by the table that also embeds them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embeddings = nn.Embedding(WORDS, WIDTH)
        self.inner = nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embeddings.weight

    def forward(self, input_ids, attention_mask):
        hidden = self.inner(self.embeddings(input_ids)) + attention_mask.mean()
        return SimpleNamespace(logits=self.head(hidden.mean(dim=1)))


def test_embedding_and_tied_head_are_one_tensor_and_compute_the_same(tmp_path):
    model = Tied().eval()
    OnnxBackend().convert(model, SPEC, tmp_path)
    stored = [tuple(item.dims) for item in onnx.load(tmp_path / "model.onnx").graph.initializer if len(item.dims) == 2]
    assert sorted(stored) in ([(WIDTH, WIDTH), (WIDTH, WORDS)], [(WIDTH, WIDTH), (WORDS, WIDTH)])
    ids = np.arange(16).reshape(2, 8)
    mask = np.ones_like(ids)
    with torch.no_grad():
        mask_scores = torch.zeros(2, 1, 1, 8)  # the wrapper hands over additive scores
        wanted = model(torch.from_numpy(ids), mask_scores).logits.numpy()
    found = OnnxPredictor(tmp_path / "model.onnx", threads=1).logits({"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(found, wanted, atol=1e-5)
