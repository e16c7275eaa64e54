"""The model that is pretrained, with whatever head it has: what is trained is the encoder inside."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.families import adapter_for
from compressor.models import load_compressed, load_encoder
from compressor.pretrain.heads import MaskedHead, masked_head

_TASK_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


def load_any(checkpoint: Checkpoint) -> nn.Module:
    """Loads a model with its task's head, where it has one, or the encoder alone; module paths are the family's.

    Raises:
        ModelError: as :func:`compressor.models.load_compressed`.
    """
    architecture = str(next(iter(checkpoint.config.get("architectures") or ()), ""))
    return load_compressed(checkpoint) if architecture.endswith(_TASK_HEADS) else load_encoder(checkpoint)


def encoder_of(model: nn.Module) -> nn.Module:
    """Returns the transformers encoder inside a model."""
    return model.get_submodule(adapter_for(model.config).base)


def freeze_pooler(encoder: nn.Module) -> None:
    """Takes an encoder's pooler, which predicts no tokens, out of training."""
    if (pooler := getattr(encoder, "pooler", None)) is not None:
        pooler.requires_grad_(False)


@dataclass(frozen=True)
class MaskedLanguageModel:
    """An encoder and the trained head that predicts its masked words."""

    encoder: nn.Module
    head: MaskedHead


def load_masked_language_model(checkpoint: Checkpoint) -> MaskedLanguageModel:
    """Loads a masked language model: one of transformers, or the result of a ``pretrain`` stage.

    Raises:
        ModelError: there is no trained head.
    """
    model = load_encoder(checkpoint)
    head, trained = masked_head(model, checkpoint)
    if not trained:
        raise ModelError(
            f"{checkpoint.path} has no head that predicts masked words",
            remedy="name a fill-mask model, or the result of a pretrain stage with the objective mlm",
        )
    return MaskedLanguageModel(encoder_of(model), head.eval())
