import math

import pytest
import torch

from compressor.distill.losses.labels import labels_loss
from tests.compressor.distill.losses.slow import mean, numbers, softmax


def test_labels() -> None:
    logits, labels = numbers(4, 3, seed=3), [0, 2, 1, 1]
    expected = -mean([math.log(softmax(row)[label]) for row, label in zip(logits.tolist(), labels, strict=True)])
    assert labels_loss(logits, torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-9)
