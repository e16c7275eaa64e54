"""Embeddings: the student's word vectors, positions included, follow the teacher's (Jiao et al. 2020, equation 9)."""

from __future__ import annotations

from typing import Literal

from compressor.distill.losses.base import LossSettings, LossTerm, Pairs
from compressor.distill.losses.hidden import StatesTerm
from compressor.distill.outputs import Shape


class EmbeddingsLoss(LossSettings):
    """Settings of the loss ``embeddings``: the mean squared difference of the embeddings' outputs.

    Here it has a weight and a schedule of its own; give ``hidden`` ``embeddings: false`` beside it.
    """

    name: Literal["embeddings"] = "embeddings"

    def state_pairs(self, student: Shape, teacher: Shape) -> Pairs:
        """Returns the embeddings' outputs."""
        return ((0, 0),)

    def term(self, student: Shape, teacher: Shape) -> LossTerm:
        """Returns the term, with a learned projection where the widths differ."""
        return StatesTerm(self.state_pairs(student, teacher), student, teacher)
