"""What the tests of structural compression share."""

from __future__ import annotations

import torch
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.data.batches import encode_split
from compressor.data.dataset import Split
from compressor.models import load_compressed
from tests.models import SENTENCES


def logits_of(model: nn.Module, checkpoint: Checkpoint, texts: tuple[str, ...] = SENTENCES) -> torch.Tensor:
    """Logits of a classifier in evaluation mode, the texts tokenised by the checkpoint."""
    data = encode_split(checkpoint, Split(texts, (0,) * len(texts)), max_tokens=48)
    with torch.no_grad():
        return model(**data.inputs(range(len(texts)))).logits


def reloaded_alike(model: nn.Module, checkpoint: Checkpoint) -> bool:
    """Whether the saved checkpoint loads to the very logits of the model it was saved from, and they are finite."""
    found, wanted = logits_of(load_compressed(checkpoint.path), checkpoint), logits_of(model, checkpoint)
    return bool(torch.isfinite(wanted).all()) and torch.equal(found, wanted)
