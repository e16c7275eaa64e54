"""The settings of ``augment:`` in a ``distill`` stage; the defaults are TinyBERT's."""

from __future__ import annotations

from pydantic import Field

from compressor.stage import StageConfig


class AugmentConfig(StageConfig):
    """How the training texts are varied (Jiao et al. 2020, algorithm 1 and section 4.1)."""

    model: str
    """Where the words come from: the id of an earlier ``pretrain`` stage, the folder of a masked language model, or a
    hub id."""
    variants: int = Field(default=20, gt=0)
    """Most variants of a text."""
    probability: float = Field(default=0.4, gt=0, le=1)
    """Chance of a word to be replaced."""
    top_k: int = Field(default=15, gt=0)
    """How many of the likeliest words a replacement is drawn from."""
    max_rows: int = Field(default=100_000, gt=0)
    """Most variants in all, spread evenly over the texts."""
