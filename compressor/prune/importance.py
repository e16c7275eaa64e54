"""How much each head, neuron and layer matters: one streaming pass, whatever the number of sentences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import ValidationError
from torch import nn

from compressor.core.folders import write_json
from compressor.core.hashing import sha256_json
from compressor.core.schema import Record
from compressor.core.task import Task
from compressor.data.batches import EncodedSplit, sorted_batches
from compressor.families import FamilyAdapter, adapter_for
from compressor.families.adapter import linear
from compressor.shapes import shape_of
from compressor.sources import source_hash
from compressor.stage import Progress, silent
from compressor.text import ATTENTION_MASK
from compressor.train.objective import Classification

Method = Literal["magnitude", "taylor", "activation"]
IMPORTANCE = "importance.json"
"""File beside a pruned checkpoint: the importances by which it was pruned."""
_BATCH = 16


class Importance(Record):
    """Importances of one model's parts, larger is more important."""

    method: Method
    sentences: int
    heads: tuple[tuple[float, ...], ...]
    """For each stored layer, one number a head."""
    ffn: tuple[tuple[float, ...], ...]
    """For each feed-forward network, layer after layer, one number a neuron."""
    depths: tuple[float, ...] = ()
    """For each applied layer, how far it turns its input: 1 - cosine, 0 for a layer that changes nothing."""


def importance_of(
    model: nn.Module,
    data: EncodedSplit | None,
    *,
    method: Method,
    task: Task,
    depths: bool = True,
    progress: Progress = silent,
) -> Importance:
    """Returns the importances of a model's heads, neurons and layers.

    ``magnitude``: the norm of all weights of the part. ``activation``: the root mean square of what the part adds to
    the residual stream, were its outputs uncorrelated: its output's, times the norm of the weights that read it.
    ``taylor``: the change of the task loss when the part is taken out, to first order (Molchanov et al. 2017; for
    heads Michel et al. 2019): the absolute sum over a sentence of output times gradient, averaged over sentences.

    Args:
        model: in evaluation mode; its gradients are discarded.
        data: labelled text (labels are read by ``taylor`` alone), never the text that is reported on; None where no
            text is needed.
        method: how the parts are judged.
        task: what the labels are.
        depths: whether whole layers are judged too, for which even ``magnitude`` needs text.
        progress: told after every batch.
    """
    adapter = adapter_for(model.config)
    layers = [*adapter.stored_layers(model).values()]
    head_size = shape_of(model).head_size
    outputs = [linear(layer, adapter.layer.attention_output) for layer in layers]
    networks = [network for layer in layers for network in adapter.feed_forwards(layer)]
    readers = [*outputs, *(narrow for _, narrow in networks)]
    sums = [torch.zeros(reader.in_features, dtype=torch.float64) for reader in readers]
    turns = _Turns(adapter.num_layers(model.config))
    head_sums = [torch.zeros(reader.in_features // head_size, dtype=torch.float64) for reader in outputs]
    sees = _gradients(sums, head_sums, head_size) if method == "taylor" else _powers(sums, turns)
    tokens = 0
    loss = Classification(model, task) if method == "taylor" else None
    reads = depths or method != "magnitude"
    if data is None and reads:
        raise ValueError(f"importance by {method} needs text")
    batches = sorted_batches(data.lengths, _BATCH) if data is not None and reads else []
    with _watched(layers, readers, sees, turns):
        for done, rows in enumerate(batches, start=1):
            assert data is not None  # else there are no batches
            inputs = data.inputs(rows)
            turns.start(inputs[ATTENTION_MASK])
            tokens += int(inputs[ATTENTION_MASK].sum())
            if loss is None:
                with torch.inference_mode():
                    model(**inputs)
            else:
                kind = torch.long if task == "text-classification" else torch.float32
                labels = torch.tensor([data.labels[row] for row in rows], dtype=kind)
                (loss(inputs, labels, rows)["labels"] * len(rows)).backward()
                model.zero_grad(set_to_none=True)
            progress(done, len(batches), "importance")
    if method == "taylor":
        count = max(1, sum(map(len, batches)))
        heads = [total / count for total in head_sums]
        neurons = [total / count for total in sums[len(outputs) :]]
    elif method == "activation":
        norms = [reader.weight.detach().double().square().sum(dim=0) for reader in readers]
        added = [total / max(1, tokens) * norm for total, norm in zip(sums, norms, strict=True)]
        heads = [power.reshape(-1, head_size).sum(dim=1).sqrt() for power in added[: len(outputs)]]
        neurons = [power.sqrt() for power in added[len(outputs) :]]
    else:
        heads = [_head_norms(adapter, layer, head_size) for layer in layers]
        neurons = [(_row_power(wide) + _column_power(narrow)).sqrt() for wide, narrow in networks]
    return Importance(
        method=method,
        sentences=sum(map(len, batches)),
        heads=_rounded(heads),
        ffn=_rounded(neurons),
        depths=turns.means() if batches else (),
    )


def cached_importance(
    model: nn.Module,
    data: EncodedSplit,
    folder: Path,
    checkpoint_hash: str,
    *,
    method: Method,
    task: Task,
    depths: bool = True,
    progress: Progress = silent,
) -> Importance:
    """Returns :func:`importance_of`, kept in ``folder`` under a key of checkpoint, data, method and this code."""
    asked = [checkpoint_hash, [item.ids for item in data.encoded], data.labels, method, task, depths]
    key = sha256_json([*asked, source_hash(__name__)])
    file = folder / f"{key[:32]}.json"
    try:
        return Importance.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        found = importance_of(model, data, method=method, task=task, depths=depths, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, json.loads(found.model_dump_json()))
    return found


class _Turns:
    """Mean of 1 - cosine of each applied layer's input and output over real tokens (ShortGPT, Men et al. 2024)."""

    def __init__(self, depth: int) -> None:
        self._sums = np.zeros(depth)
        self._tokens = 0
        self._call = 0
        self.mask = torch.ones(0)

    def start(self, mask: torch.Tensor) -> None:
        self.mask = mask.double()
        self._call = 0
        self._tokens += int(mask.sum())

    def see(self, before: torch.Tensor, after: torch.Tensor) -> None:
        cosine = nn.functional.cosine_similarity(before.detach().double(), after.detach().double(), dim=-1)
        self._sums[self._call] += float(((1 - cosine) * self.mask).sum())
        self._call += 1

    def means(self) -> tuple[float, ...]:
        return _rounded([torch.from_numpy(self._sums / max(1, self._tokens))])[0]


_Sees = Callable[[int, torch.Tensor], None]
"""Told the place of a reader and what it reads: (batch, tokens, width)."""


def _powers(sums: list[torch.Tensor], turns: _Turns) -> _Sees:
    def see(place: int, values: torch.Tensor) -> None:
        power = values.detach().double().square() * turns.mask[:, :, None]
        sums[place] += power.sum(dim=(0, 1))

    return see


def _gradients(sums: list[torch.Tensor], head_sums: list[torch.Tensor], head_size: int) -> _Sees:
    def see(place: int, values: torch.Tensor) -> None:
        def arrived(gradient: torch.Tensor) -> None:
            change = (values.detach() * gradient).double().sum(dim=1)  # (batch, width)
            sums[place] += change.abs().sum(dim=0)
            if place < len(head_sums):
                head_sums[place] += change.reshape(len(change), -1, head_size).sum(dim=2).abs().sum(dim=0)

        values.register_hook(arrived)  # type: ignore[no-untyped-call]

    return see


@contextmanager
def _watched(layers: list[nn.Module], readers: list[nn.Linear], sees: _Sees, turns: _Turns) -> Iterator[None]:
    def reader_hook(place: int) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda module, inputs: sees(place, inputs[0])

    def layer_hook(module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
        before = inputs[0] if inputs else named["hidden_states"]
        turns.see(before, output[0] if isinstance(output, tuple) else output)

    handles = [it.register_forward_pre_hook(reader_hook(place)) for place, it in enumerate(readers)]
    handles += [layer.register_forward_hook(layer_hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _head_norms(adapter: FamilyAdapter, layer: nn.Module, head_size: int) -> torch.Tensor:
    power = sum((_row_power(it) for it in adapter.projections(layer)), start=torch.zeros(1, dtype=torch.float64))
    power = power + _column_power(linear(layer, adapter.layer.attention_output))
    return power.reshape(-1, head_size).sum(dim=1).sqrt()


def _row_power(module: nn.Linear) -> torch.Tensor:
    power = module.weight.detach().double().square().sum(dim=1)
    return power if module.bias is None else power + module.bias.detach().double().square()


def _column_power(module: nn.Linear) -> torch.Tensor:
    return module.weight.detach().double().square().sum(dim=0)


def _rounded(values: list[torch.Tensor]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(f"{value:.7g}") for value in item.tolist()) for item in values)
