"""Stage ``sparsify``: single weights become zero; the shapes stay, so nothing gets faster without a sparse kernel."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from compressor.core.checkpoint import WEIGHTS, Checkpoint
from compressor.core.errors import ModelError, StageError
from compressor.data.batches import EncodedSplit, encode_split, sorted_batches
from compressor.data.dataset import sampled
from compressor.families import adapter_for
from compressor.families.heads import find_task
from compressor.finetune import check_saved
from compressor.models import load_compressed, load_config, save_checkpoint, unique_parameters
from compressor.prune.masks import Granularity, check_pattern, fits, fixed_ratio, masks_for
from compressor.share.files import carry_files
from compressor.stage import Context, Produces, Stage, StageConfig, register
from compressor.train.history import write_history
from compressor.train.runtime import reproducible

_CHUNK = 1 << 24
_MAX_TOKENS = 128


class SparsifyConfig(StageConfig):
    """Settings of ``sparsify``."""

    ratio: float | None = Field(default=None, gt=0, lt=1)
    """Share of zeros among the encoder's matrix weights; an N:M pattern has its own."""
    pattern: str = "unstructured"
    """``unstructured``; ``2:4``, two weights kept of every four in a row (what NVIDIA's sparse tensor cores read); or
    ``4x1``, blocks of so many rows and columns."""
    by: Granularity = "global"
    """One ranking over all matrices, or the same share in each ``matrix``."""
    activations: bool = False
    """Weigh each weight by the norm of the input that it multiplies (Wanda, Sun et al. 2024), ranked in each matrix."""
    sentences: int = Field(default=128, gt=0)
    """Training sentences on which inputs are observed."""

    @model_validator(mode="after")
    def _one_ratio(self) -> Self:
        check_pattern(self.pattern)
        if (self.ratio is None) == (fixed_ratio(self.pattern) is None):
            raise ValueError("give 'ratio' for unstructured and block patterns; N:M has its own")
        return self


@register
class Sparsify(Stage[SparsifyConfig]):
    """Sets the least important weights of the encoder's linear modules to zero."""

    name: ClassVar[str] = "sparsify"
    config_type: ClassVar[type[StageConfig]] = SparsifyConfig
    produces: ClassVar[Produces] = "checkpoint"
    packages: ClassVar[tuple[str, ...]] = ("torch", "transformers", "tokenizers")

    def requires(self, context: Context) -> None:
        """Checks the checkpoint before any work.

        Raises:
            ModelError: no supported model.
        """
        load_config(context.current)

    def run(self, context: Context, output: Path) -> dict[str, Any]:
        """Sets weights to zero and saves; returns what became smaller and what did not."""
        settings = self.config
        with reproducible(seed=context.seed, threads=context.threads):
            model = load_compressed(context.current, task=find_task(context.current))
            modules = encoder_matrices(model)
            scores = {name: module.weight.detach().abs() for name, module in modules.items()}
            if settings.activations:
                split = sampled(context.data.train, settings.sentences, seed=context.seed)
                norms = input_norms(model, modules, encode_split(context.current, split, max_tokens=_MAX_TOKENS))
                scores = {name: value * norms[name] for name, value in scores.items()}
            masks = masks_for(
                scores, pattern=settings.pattern, ratio=settings.ratio or 0.0,
                granularity="matrix" if settings.activations else settings.by,
            )  # fmt: skip
            if not any(fits(value.shape, settings.pattern) for value in scores.values()):
                raise ModelError(
                    f"no matrix of {context.current.path} can be divided by the pattern {settings.pattern}",
                    remedy="choose another pattern",
                )
            with torch.no_grad():
                for name, module in modules.items():
                    module.weight.mul_(masks[name])
        carry_files(context.current, output)
        save_checkpoint(model, context.current.path, output)
        weights = sum(mask.numel() for mask in masks.values())
        zeros = sum(int((module.weight == 0).sum()) for module in modules.values())
        facts = {
            "sparsity": {
                "pattern": settings.pattern,
                "encoder_weights": weights,
                "zeros": zeros,
                "share": zeros / weights,
                "whole_matrices": sorted(name for name, mask in masks.items() if bool(mask.all())),
            },
            "parameters": {"before": unique_parameters(model), "after": unique_parameters(model)},
            "bytes": {
                "file_before": context.current.size_bytes,
                "file_after": Checkpoint(output).size_bytes,
                "compressed_before": sum(map(_deflated, sorted(context.current.path.glob("*.safetensors")))),
                "compressed_after": _deflated(output / WEIGHTS),
            },
            "faster": "nothing: shapes are the same, and no exported format's kernels skip zeros by themselves",
        }
        write_history(output, context.current, {"stage": self.name, **facts})
        return facts

    def ensures(self, context: Context, output: Path) -> None:
        """Proves that the saved model reads back with as many zeros as were made."""
        found = sum(int((it.weight == 0).sum()) for it in encoder_matrices(check_saved(output)).values())
        expected = Checkpoint.open(output).compression["history"][-1]["sparsity"]["zeros"]
        if found != expected:
            raise StageError(f"{output} has {found} zeros; expected {expected}", remedy="report this stage")


def encoder_matrices(model: nn.Module) -> dict[str, nn.Linear]:
    """Returns the linear modules inside the stored encoder layers, by path."""
    adapter = adapter_for(model.config)
    return {
        f"{path}.{name}": module
        for path, layer in adapter.stored_layers(model).items()
        for name, module in layer.named_modules()
        if isinstance(module, nn.Linear)
    }


def input_norms(model: nn.Module, modules: dict[str, nn.Linear], data: EncodedSplit) -> dict[str, torch.Tensor]:
    """Returns the norm of each module's inputs over all tokens, shape (columns,); one streaming pass."""
    powers = {name: torch.zeros(module.in_features, dtype=torch.float64) for name, module in modules.items()}

    def watch(name: str) -> Callable[[nn.Module, tuple[torch.Tensor, ...]], None]:
        def see(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            powers[name] += inputs[0].detach().double().square().flatten(0, -2).sum(dim=0)

        return see

    handles = [module.register_forward_pre_hook(watch(name)) for name, module in modules.items()]
    try:
        with torch.inference_mode():
            for rows in sorted_batches(data.lengths, 1):
                model(**data.inputs(rows))
    finally:
        for handle in handles:
            handle.remove()
    return {name: power.sqrt().float() for name, power in powers.items()}


def _deflated(file: Path) -> int:
    """Returns the bytes of a file as an app store would deliver it (deflate, as in a zip or an APK)."""
    packer = zlib.compressobj(6)
    total = 0
    with file.open("rb") as stream:
        while part := stream.read(_CHUNK):
            total += len(packer.compress(part))
    return total + len(packer.flush())
