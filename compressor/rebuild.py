"""Weights of a model whose shape a config cannot say: saved so that a shared one is stored once, and read back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.overrides import TorchFunctionMode

from compressor.core.checkpoint import COMPRESSION, WEIGHTS, Checkpoint
from compressor.core.errors import ModelError
from compressor.families import FamilyAdapter
from compressor.shapes import Shape, apply_shape


def save_weights(model: nn.Module, output: Path) -> None:
    """Writes ``config.json`` and safetensors weights; a tensor with several names is stored under the first."""
    config: Any = model.config
    config.architectures = [type(model).__name__]
    output.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(output)
    for old in output.glob("*.safetensors*"):
        old.unlink()
    save_file(unique_tensors(model), output / WEIGHTS, metadata={"format": "pt"})


def unique_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the state of a model, each shared tensor under its first name only."""
    found: dict[tuple[int, torch.Size], tuple[str, torch.Tensor]] = {}
    for name, tensor in model.state_dict().items():
        found.setdefault((tensor.data_ptr(), tensor.shape), (name, tensor.contiguous()))
    return dict(found.values())


def load_weights(
    model: nn.Module, checkpoint: Checkpoint, adapter: FamilyAdapter, *, prefix: str, fresh_head: bool
) -> list[str]:
    """Fills a model of the right shape from a checkpoint's safetensors files.

    Args:
        model: as :func:`apply_shape` left it.
        checkpoint: where the weights are.
        adapter: the family's.
        prefix: of the family's paths that the model's own names lack (a bare encoder).
        fresh_head: whether weights of another size outside of the encoder are left as they are.

    Returns:
        Names that the files have no fitting weights for.

    Raises:
        ModelError: weights of the encoder that ``compression.json`` has another shape for, or no place.
    """
    left = dict(model.named_parameters()) | {
        name: buffer for name, buffer in model.named_buffers() if name in model.state_dict()
    }
    foreign = []
    base = f"{adapter.base}."
    for file in sorted(checkpoint.path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as stored:
            for key in stored.keys():  # noqa: SIM118  safe_open is no mapping
                name = next((it for it in (key, key.removeprefix(base), base + key) if it in left), None)
                if name is None:
                    foreign.append(key)
                    continue
                target, found = left[name], stored.get_tensor(key)
                if target.shape == found.shape:
                    target.data.copy_(found)
                    del left[name]
                elif not fresh_head or adapter.in_body(prefix + name):
                    raise ModelError(
                        f"{checkpoint.path}: {key} is {_by(found)}; {COMPRESSION} and config say {_by(target)}",
                        remedy="restore the files that were saved together",
                    )
    stray = sorted(key for key in foreign if adapter.in_body(key if key.startswith(base) else base + key))
    if stray and not fresh_head:
        raise ModelError(
            f"{checkpoint.path} holds {stray[0]} ({len(stray)} tensors) that {COMPRESSION} has no place for",
            remedy="restore the files that were saved together",
        )
    return sorted(left)


def shaped_model(auto_class: str, config: Any, shape: Shape, adapter: FamilyAdapter, *, attention: str) -> nn.Module:
    """Returns a transformers model of this config and shape in float32, its weights still to be filled."""
    import transformers

    model: nn.Module = getattr(transformers, auto_class).from_config(
        config, attn_implementation=attention, dtype=torch.float32
    )
    holder = model
    if auto_class == "AutoModel":  # paths of the family start at a task model's
        holder = nn.Module()
        holder.add_module(adapter.base, model)
    apply_shape(holder, config, shape)
    return model


@contextmanager
def without_random_numbers() -> Iterator[None]:
    """Skips the drawing of initial weights, which would be overwritten, while the block runs."""
    with _NoRandom():
        yield


class _NoRandom(TorchFunctionMode):
    _DRAWS = frozenset({torch.Tensor.normal_, torch.Tensor.uniform_})

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return args[0] if func in self._DRAWS else func(*args, **(kwargs or {}))


def _by(tensor: torch.Tensor) -> str:
    return " x ".join(map(str, tensor.shape))
