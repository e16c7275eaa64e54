"""Outliers of activations moved into weights, the model's function left exactly as it is.

SmoothQuant (Xiao et al. 2023) divides each channel of an activation by ``s`` and multiplies the weights that read it by
the same ``s``, with ``s = max|x|^a / max|w|^(1 - a)``. The division must end up in parameters. In the published case
those are a LayerNorm's, in front of linear modules alone. BERT's families normalise *after* the residual sum, so what
most of their LayerNorms write is also the residual of the next sum, and no parameter can undo the division there. What
remains exact, and is done here:

- the value projection in front of the attention output: a head's probabilities mix tokens, never channels;
- a LayerNorm whose result only linear modules read (in front of a projection of narrow embeddings);
- ReLU feed-forward networks (MobileBERT): ``relu(x / s) = relu(x) / s``.

Where one stored module is applied several times (ALBERT), it is smoothed once, by the largest values of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from compressor.core.errors import StageError
from compressor.core.schema import Record
from compressor.families import adapter_for
from compressor.quantize.inputs import Inputs, linear_modules, quantize_rows, visit_inputs

PARITY = 1e-5
"""Largest change of the logits, in units of their spread (or of 1 where that is larger)."""
_SMALLEST = 1e-5
_ROWS = 2048
"""Token rows of each module that the error is measured on."""


@dataclass(frozen=True)
class Pair:
    """A module whose output channels can be divided, and the linear module that alone reads them."""

    producer: str
    consumer: str


class SmoothedPair(Record):
    """What became of a pair; errors of the consumer's eight-bit outputs, relative to their size."""

    producer: str
    consumer: str
    error_before: float
    error_after: float
    kept: bool


def smooth(model: nn.Module, batches: Sequence[Inputs], *, strength: float, levels: int) -> tuple[SmoothedPair, ...]:
    """Smooths every pair of a model where that lowers the error of eight-bit products, in place.

    Args:
        model: a float classifier in evaluation mode.
        batches: calibration text.
        strength: how much of the difficulty moves into the weights, the paper's alpha (0 to 1).
        levels: largest magnitude of an integer weight.

    Returns:
        One record a pair.

    Raises:
        StageError: the logits are not those of before.
    """
    modules = linear_modules(model)
    pairs = pairs_of(model)
    rows: dict[str, list[torch.Tensor]] = {pair.consumer: [] for pair in pairs}

    def keep(path: str, values: torch.Tensor) -> None:
        if sum(map(len, rows[path])) < _ROWS:
            rows[path].append(values[:_ROWS].clone())

    watched = {path: modules[path] for path in rows}
    before = visit_inputs(model, watched, batches, keep)
    found = []
    for pair in pairs:
        values, weight = torch.cat(rows[pair.consumer]), modules[pair.consumer].weight.detach()
        factors = _factors(values, weight, strength)
        errors = [product_error(values, weight, levels), product_error(values / factors, weight * factors, levels)]
        kept = errors[1] < errors[0]
        if kept:
            _divide(model.get_submodule(pair.producer), modules[pair.consumer], factors)
        found.append(
            SmoothedPair(
                producer=pair.producer, consumer=pair.consumer, error_before=errors[0], error_after=errors[1], kept=kept
            )
        )
    after = visit_inputs(model, {}, batches, keep)
    moved = float((after - before).abs().max()) / max(1.0, float(before.std()))
    if not moved <= PARITY:
        raise StageError(
            f"smoothing moved the logits by {moved:.2g} of their spread; expected at most {PARITY:g}",
            remedy="leave smooth out for this model, and report it",
        )
    return tuple(found)


def pairs_of(model: nn.Module) -> tuple[Pair, ...]:
    """Returns the pairs of a model between which channels can be divided without changing what it computes."""
    adapter = adapter_for(model.config)
    pairs = []
    for layer in adapter.stored_layers(model):
        pairs.append(Pair(f"{layer}.{adapter.layer.value}", f"{layer}.{adapter.layer.attention_output}"))
        if str(getattr(model.config, "hidden_act", "")) == "relu":
            pairs.append(Pair(f"{layer}.{adapter.layer.intermediate}", f"{layer}.{adapter.layer.output}"))
    return (*pairs, *_embedding_projection(model, adapter.word_embeddings))


def product_error(values: torch.Tensor, weight: torch.Tensor, levels: int) -> float:
    """Returns how far an eight-bit product is from the exact one, relative to the exact one's size.

    Args:
        values: activations, (rows, inputs); one uint8 range for all of them, as the formats have.
        weight: (outputs, inputs); one symmetric step for each output.
        levels: largest magnitude of an integer weight.
    """
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    step = (high - low) / 255 or 1.0
    zero = round(-low / step)
    rounded = ((values / step).round() + zero).clamp(0, 255) - zero
    units, steps = quantize_rows(weight, levels)
    exact = values @ weight.T
    found = rounded @ units.round().T * step * steps.T
    return float((found - exact).norm() / exact.norm().clamp_min(1e-30))


def _embedding_projection(model: nn.Module, word_embeddings: str) -> tuple[Pair, ...]:
    """The LayerNorm of narrow embeddings, where the only reader is their projection to the hidden width."""
    embeddings = word_embeddings.rpartition(".")[0]
    norm = dict(model.named_modules()).get(f"{embeddings}.LayerNorm")
    config: Any = model.config
    width, hidden = int(getattr(config, "embedding_size", 0) or 0), adapter_for(config).hidden_size(config)
    if not isinstance(norm, nn.LayerNorm) or width in (0, hidden):
        return ()
    base = embeddings.rpartition(".")[0]
    readers = [
        path
        for path, module in linear_modules(model).items()
        if path.startswith(f"{base}.") and module.in_features == width and module.out_features == hidden
    ]
    return tuple(Pair(f"{embeddings}.LayerNorm", reader) for reader in readers[:1] if len(readers) == 1)


def _factors(values: torch.Tensor, weight: torch.Tensor, strength: float) -> torch.Tensor:
    largest = values.abs().amax(dim=0).clamp_min(_SMALLEST)
    weights = weight.abs().amax(dim=0).clamp_min(_SMALLEST)
    factors = largest**strength / weights ** (1 - strength)
    return factors / factors.log().mean().exp()


@torch.no_grad()
def _divide(producer: nn.Module, consumer: nn.Linear, factors: torch.Tensor) -> None:
    weight, bias = producer.weight, producer.bias
    if not isinstance(weight, torch.Tensor):
        raise StageError("a smoothed module holds no weight", remedy="report this model")
    weight.div_(factors[:, None] if weight.dim() == 2 else factors)
    if isinstance(bias, torch.Tensor):
        bias.div_(factors)
    consumer.weight.mul_(factors)
