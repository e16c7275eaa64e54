"""The settings that every training stage shares."""

from __future__ import annotations

import math

from pydantic import Field

from compressor.stage import StageConfig


class TrainSettings(StageConfig):
    """How to train; a stage's own settings extend these."""

    epochs: float = Field(default=1.0, gt=0)
    """Passes over the training data; a fraction is allowed."""
    lr: float = Field(default=1e-4, gt=0)
    """Peak learning rate of AdamW."""
    batch_size: int = Field(default=32, gt=0)
    """Sentences a step, over all processes."""
    accumulate: int = Field(default=1, gt=0)
    """Parts in which a process runs its share of a batch, for less memory; the step stays the same."""
    warmup_ratio: float = Field(default=0.1, ge=0, le=1)
    """Share of all steps over which the rate rises linearly; it then falls linearly to zero."""
    weight_decay: float = Field(default=0.01, ge=0)
    """Not applied to biases and normalisation."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    max_tokens: int = Field(default=128, gt=2)
    """Longer sentences are cut, in training and in the stage's own evaluation."""
    bf16: bool = False
    """Compute in bfloat16 where that is safe (autocast) and the processor has it; weights stay in float32."""
    freeze_embeddings: bool = False
    """Leave the word embeddings, half of a small model's parameters, as they are: each step is cheaper."""
    checkpoint_steps: int = Field(default=200, gt=0)
    """Steps between training checkpoints, from which a killed run resumes."""
    seed: int | None = None
    """Overrides the recipe's seed for this stage."""

    def steps_per_epoch(self, examples: int) -> int:
        """Returns the number of optimiser steps of one pass over ``examples`` training sentences."""
        return max(1, math.ceil(examples / self.batch_size))

    def seed_or(self, recipe_seed: int) -> int:
        """Returns the stage's own seed, else the recipe's."""
        return recipe_seed if self.seed is None else self.seed

    def total_steps(self, examples: int) -> int:
        """Returns the number of optimiser steps over ``examples`` training sentences."""
        return max(1, math.ceil(self.epochs * self.steps_per_epoch(examples)))
