"""AdamW with decay where it belongs, and a linear warm-up and decay of the rate."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from compressor.families import adapter_for
from compressor.train.settings import TrainSettings


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Splits trainable parameters into decayed matrices and undecayed vectors (biases, normalisation scales)."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trainable if parameter.dim() >= 2], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trainable if parameter.dim() < 2], "weight_decay": 0.0},
    ]


def freeze_word_embeddings(model: nn.Module) -> None:
    """Takes the word embeddings of a classifier out of training."""
    adapter_for(model.config).word_embedding(model).requires_grad_(False)


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Returns AdamW (Loshchilov and Hutter 2019) over ``model``'s trainable parameters."""
    return torch.optim.AdamW(parameter_groups(model, settings.weight_decay), lr=settings.lr, fused=True)


def make_schedule(
    optimizer: torch.optim.Optimizer, settings: TrainSettings, total_steps: int
) -> torch.optim.lr_scheduler.LambdaLR:
    """Returns a linear warm-up to the peak rate followed by a linear decay to zero at ``total_steps``."""
    from transformers import get_linear_schedule_with_warmup

    warmup = int(settings.warmup_ratio * total_steps)
    schedule: torch.optim.lr_scheduler.LambdaLR = get_linear_schedule_with_warmup(optimizer, warmup, total_steps)
    return schedule
