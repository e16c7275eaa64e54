"""The head that predicts hidden words: each family's own, tied to the word embeddings, kept beside a checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.families import adapter_for
from compressor.models import quiet_transformers
from compressor.share.embedding import FactorizedEmbedding

HEAD = Path("pretraining") / "mlm_head.safetensors"
"""Where a checkpoint keeps the head; nothing but this module reads it."""


class MaskedHead(nn.Module):
    """The part of a family's masked language model that stands above its encoder.

    The encoder is no part of it, and neither is a tied table of word embeddings: both are trained and saved with the
    model that owns them.

    Args:
        config: the transformers config of the encoder.
        table: the encoder's word embeddings.

    Raises:
        ModelError: a family without such a head, or word embeddings that it cannot be tied to.
    """

    def __init__(self, config: Any, table: nn.Embedding) -> None:
        super().__init__()
        check_head(config, factorized=isinstance(table, FactorizedEmbedding))
        import transformers

        adapter = adapter_for(config)
        shallow = copy.deepcopy(config)
        # The encoder that is made along with the head is thrown away.
        setattr(shallow, adapter.layers_key, 1)
        model: Any = transformers.AutoModelForMaskedLM.from_config(shallow, dtype=torch.float32)
        setattr(model, adapter.base, _Given())
        self.model = model
        self._table = (table,)
        self._tied = bool(getattr(config, "tie_word_embeddings", True))

    def tie(self) -> MaskedHead:
        """Reads the word embeddings from the encoder from now on; returns itself."""
        if self._tied:
            decoder = self.model.get_output_embeddings()
            tied = _Tied(self._table[0], decoder.bias)
            self.model.set_output_embeddings(tied)
            if not any(parameter is decoder.bias for parameter in self.model.parameters()):
                tied.register_parameter("own_bias", decoder.bias)
        return self

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Returns logits (tokens, vocabulary) for hidden states (tokens, width)."""
        logits: torch.Tensor = self.model(states).logits
        return logits

    def save(self, output: Path) -> None:
        """Writes the head into a checkpoint's folder."""
        file = output / HEAD
        file.parent.mkdir(exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in self._own().items()}, file)

    def load(self, file: Path) -> None:
        """Reads what :meth:`save` wrote.

        Raises:
            ModelError: a damaged file, or one of another model.
        """
        try:
            self.load_state_dict({**self.state_dict(), **load_file(file)})
        except (RuntimeError, SafetensorError, OSError) as error:
            raise ModelError(
                f"{file} does not fit the model beside it: {error}", remedy="run the pretrain stage again"
            ) from error

    def take(self, checkpoint: Checkpoint) -> bool:
        """Fills the head, not yet tied, from a checkpoint of a masked language model; False where it has none."""
        own = self.model.state_dict()
        decoder = self.model.get_output_embeddings()
        if self._tied:
            own = {name: tensor for name, tensor in own.items() if tensor.data_ptr() != decoder.weight.data_ptr()}
        left = {tensor.data_ptr() for tensor in own.values()}
        found = {}
        for file in sorted(checkpoint.path.glob("*.safetensors")):
            with safe_open(file, framework="pt") as stored:
                for key in stored.keys():  # noqa: SIM118  safe_open is no mapping
                    name = key.replace(".gamma", ".weight").replace(".beta", ".bias")  # as the first BERTs were saved
                    if name in own and tuple(stored.get_slice(key).get_shape()) == tuple(own[name].shape):
                        found[name] = stored.get_tensor(key)
                        left.discard(own[name].data_ptr())
        if left:
            return False
        with torch.no_grad():
            for name, tensor in found.items():
                own[name].copy_(tensor)
        return True

    def _own(self) -> dict[str, torch.Tensor]:
        """Returns the state, a parameter with two names under the first."""
        kept: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in self.state_dict().items():
            kept.setdefault(tensor.data_ptr(), (name, tensor))
        return dict(kept.values())


def masked_head(model: nn.Module, source: Checkpoint | None) -> tuple[MaskedHead, bool]:
    """Returns the head for a model's encoder, and whether ``source`` had one; a new one has random weights.

    Args:
        model: a model whose module paths are its family's.
        source: the checkpoint that may hold a head: its own, or one that an earlier stage kept beside it.

    Raises:
        ModelError: as :class:`MaskedHead`, or a damaged file.
    """
    config: Any = model.config
    head = MaskedHead(config, adapter_for(config).word_embedding(model))
    if source is None:
        return head.tie(), False
    kept = source.path / HEAD
    taken = not kept.is_file() and head.take(source)
    head.tie()
    if kept.is_file():
        head.load(kept)
    return head, taken or kept.is_file()


def same_head(ours: Any, theirs: Any) -> bool:
    """Returns whether the heads of two configs, which share a vocabulary, have the same tensors."""

    def sizes(config: Any) -> tuple[Any, ...]:
        return config.model_type, adapter_for(config).hidden_size(config), getattr(config, "embedding_size", None)

    return sizes(ours) == sizes(theirs)


def check_head(config: Any, *, factorized: bool = False) -> None:
    """Refuses a model that no such head can stand on.

    Raises:
        ModelError: the family has none, or word embeddings that it cannot be tied to.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

    quiet_transformers()
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or getattr(config, "legacy", True) is False:
        raise ModelError(
            f"no head that predicts masked words is known for this {config.model_type}",
            remedy="pretrain a model of another family, or take the stage out",
        )
    if factorized:
        raise ModelError(
            "a head that predicts masked words cannot be tied to factorized word embeddings",
            remedy="put the pretrain stage before factorize",
        )


class _Given(nn.Module):
    """Stands where the encoder was: hands on the states it is given."""

    def forward(self, input_ids: torch.Tensor, *_: Any, **__: Any) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=input_ids)


class _Tied(nn.Module):
    """A decoder whose weight is the encoder's table, which it does not own."""

    def __init__(self, table: nn.Embedding, bias: nn.Parameter) -> None:
        super().__init__()
        self._borrowed = (table, bias)

    @property
    def weight(self) -> torch.Tensor:
        return self._borrowed[0].weight

    @property
    def bias(self) -> torch.Tensor:
        return self._borrowed[1]

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return functional.linear(states, self.weight, self.bias)
