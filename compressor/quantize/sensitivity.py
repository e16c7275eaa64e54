"""Which modules lose most when they alone are quantised: the order in which mixed precision gives them up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from compressor.core.folders import write_json
from compressor.core.hashing import sha256_json
from compressor.data.batches import EncodedSplit
from compressor.evaluation import predict_logits
from compressor.quantize.fake import observed, quantizable, quantized
from compressor.quantize.plan import ActivationRange, Method, Sensitivity
from compressor.sources import source_hash
from compressor.stage import Progress, silent

_TABLE = TypeAdapter(tuple[Sensitivity, ...])


def analyse(
    model: nn.Module,
    data: EncodedSplit,
    *,
    bits: int = 8,
    method: Method = "dynamic",
    ranges: Mapping[str, ActivationRange] | None = None,
    progress: Progress = silent,
) -> tuple[Sensitivity, ...]:
    """Quantises each module alone and returns what that costs, the most sensitive module first.

    The order is that of the output error, which every sentence informs; the task loss is told beside it, for with few
    sentences it is mostly noise.

    Args:
        model: a classifier in evaluation mode; left as it was.
        data: labelled text that is not the text reported on.
        bits: of the weights.
        method: of the activations.
        ranges: of the activations, for ``static``; observed on ``data`` where it is None.
        progress: told after every module.
    """
    with observed(model) as seen:
        reference = predict_logits(model, data)
    known = (ranges or seen) if method == "static" else None
    spread = float(reference.std()) or 1.0
    own_loss = _loss(reference, data)
    modules = quantizable(model)
    found = []
    for done, (path, module) in enumerate(modules.items(), start=1):
        with quantized(model, {path: bits}, known):
            logits = predict_logits(model, data)
        found.append(
            Sensitivity(
                module=path,
                loss=_loss(logits, data) - own_loss,
                error=float(np.sqrt(np.square(logits - reference).mean())) / spread,
                parameters=sum(parameter.numel() for parameter in module.parameters(recurse=False)),
            )
        )
        progress(done, len(modules), f"sensitivity of {path}")
    return tuple(sorted(found, key=lambda item: -_rank(item)))


def analyse_cached(
    model: nn.Module,
    data: EncodedSplit,
    folder: Path,
    checkpoint_hash: str,
    *,
    bits: int = 8,
    method: Method = "dynamic",
    progress: Progress = silent,
) -> tuple[Sensitivity, ...]:
    """Returns :func:`analyse`'s table, kept in ``folder`` under a key of checkpoint, data, settings and this code."""
    asked = [checkpoint_hash, [item.ids for item in data.encoded], data.labels, bits, method]
    key = sha256_json([*asked, source_hash(__name__)])
    file = folder / f"{key[:32]}.json"
    try:
        return _TABLE.validate_json(file.read_bytes())
    except (OSError, ValidationError):
        found = analyse(model, data, bits=bits, method=method, progress=progress)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(file, json.loads(_TABLE.dump_json(found)))
    return found


def plot(table: tuple[Sensitivity, ...], file: Path, *, most: int = 40) -> None:
    """Draws the output error of the most sensitive modules as bars into an SVG or PNG file."""
    from matplotlib.figure import Figure

    shown = table[:most]
    figure = Figure(figsize=(7, 1 + 0.2 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh([item.module for item in shown], [item.error for item in shown], color="#2f6fb3")
    axes.invert_yaxis()
    axes.tick_params(labelsize=7)
    axes.set_xlabel("RMS error of the logits / their spread, with this module alone quantised")
    axes.grid(axis="x", alpha=0.3)
    figure.savefig(file)


def _rank(item: Sensitivity) -> float:
    return item.error if np.isfinite(item.error) else float("inf")


def _loss(logits: np.ndarray, data: EncodedSplit) -> float:
    return float(torch.nn.functional.cross_entropy(torch.from_numpy(logits), torch.tensor(data.labels)))
