"""Loading and saving checkpoints: safetensors only, no remote code, no network for a local folder."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from compressor.core.checkpoint import Checkpoint
from compressor.core.errors import ModelError
from compressor.core.task import Task
from compressor.families import FamilyAdapter, adapter_for
from compressor.families.heads import AUTO_CLASSES, find_task
from compressor.families.pooling import Embedder, PoolingSpec, read_pooling
from compressor.rebuild import load_weights, save_weights, shaped_model, without_random_numbers
from compressor.shapes import Shape, plain_shape, read_shape, shape_of, write_shape

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_FILES = frozenset({".onnx", ".tflite", ".engine", ".plan", ".safetensors", ".bin", ".pt", ".json"})
"""Endings of files: a name that ends so is a path, whatever else it looks like."""


def resolve(model: str | Path) -> Checkpoint:
    """Returns the checkpoint for a folder, or for a hub id (fetched to the Hugging Face cache, safetensors only).

    Raises:
        ModelError: neither a model folder nor a hub id that can be fetched.
    """
    path = Path(model)
    if path.suffix in _FILES and not path.exists():
        raise ModelError(
            f"{model} does not exist; expected a model folder, a model file or a hub id", remedy="check the path"
        )
    if path.exists() or not _HUB_ID.fullmatch(str(model)) or str(model).startswith("."):
        return Checkpoint.open(path)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
    )

    patterns = ["*.json", "*.safetensors", "*.txt", "*.model", "tokenizer*"]
    try:
        return Checkpoint.open(Path(snapshot_download(str(model), allow_patterns=patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise ModelError(
            f"'{model}' is no local folder and could not be fetched as a hub id: {type(error).__name__}",
            remedy="check the path; for a hub id, check the name, the network and HF_HUB_OFFLINE",
        ) from error


def load_config(checkpoint: Checkpoint) -> Any:
    """Returns the transformers config of a checkpoint, its family checked."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(checkpoint.path, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError) as error:
        raise ModelError(
            f"{checkpoint.path}/config.json is not a config transformers knows: {error}",
            remedy="expected a BERT-family model; code inside a model folder is never run",
        ) from error
    adapter_for(config)
    return config


def load_compressed(
    path: str | Path | Checkpoint, *, attention: str = "eager", num_labels: int | None = None, task: Task | None = None
) -> nn.Module:
    """Loads a model with its head from a folder (compressed or plain) or a hub id, in float32 and evaluation mode.

    Args:
        path: a checkpoint folder, or a hub id.
        attention: the attention implementation; ``eager`` exports and fuses everywhere.
        num_labels: replace the head by a fresh one of this size when the checkpoint has another size or none; only head
            and pooler may be made anew, never the encoder.
        task: what the head answers; found from the checkpoint where None (a classifier where ``num_labels`` is given).

    Raises:
        ModelError: not a model folder, pickled weights only, a damaged weight file, an unknown family, or weights that
            do not fit the config.
    """
    checkpoint = path if isinstance(path, Checkpoint) else resolve(path)
    config = load_config(checkpoint)
    if num_labels is not None:
        config.num_labels = num_labels
    if task is None:
        task = find_task(checkpoint) if num_labels is None else "text-classification"
    if task != "sentence-embedding":
        return _load(checkpoint, config, AUTO_CLASSES[task], attention=attention, fresh_head=num_labels is not None)
    pooling = read_pooling(checkpoint)
    return Embedder(_load_bare(checkpoint, config, attention), adapter_for(config).base, pooling).eval()


def load_encoder(path: str | Path | Checkpoint, *, attention: str = "eager") -> nn.Module:
    """Loads embeddings, layers and pooler of any checkpoint, whatever its head; module paths are the family's.

    Raises:
        ModelError: as :func:`load_compressed`.
    """
    checkpoint = path if isinstance(path, Checkpoint) else resolve(path)
    config = load_config(checkpoint)
    encoder = _load_bare(checkpoint, config, attention)
    return Embedder(encoder, adapter_for(config).base, PoolingSpec(), keep_pooler=True).eval()


def _load_bare(checkpoint: Checkpoint, config: Any, attention: str) -> nn.Module:
    base = f"{adapter_for(config).base}."
    return _load(checkpoint, config, "AutoModel", attention=attention, prefix=base)


def _load(
    checkpoint: Checkpoint, config: Any, auto_class: str, *, attention: str, fresh_head: bool = False, prefix: str = ""
) -> nn.Module:
    """Loads a transformers model; ``prefix`` is what the module paths of a bare encoder lack."""
    import transformers

    quiet_transformers()
    shape = read_shape(checkpoint)
    try:
        if shape is not None:
            model, loading = _load_shaped(
                checkpoint, config, shape, auto_class=auto_class, attention=attention, prefix=prefix,
                fresh_head=fresh_head,
            )  # fmt: skip
        else:
            model, loading = getattr(transformers, auto_class).from_pretrained(
                checkpoint.path,
                config=config,
                attn_implementation=attention,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=fresh_head,
                output_loading_info=True,
            )
    except (RuntimeError, ValueError, OSError) as error:
        raise ModelError(
            f"{checkpoint.path} does not load: {error}", remedy="check that config.json and the weights belong together"
        ) from error
    except SafetensorError as error:
        raise ModelError(
            f"{checkpoint.path} holds a damaged weight file ({error}); expected whole safetensors",
            remedy="fetch the model again; with git, 'git lfs pull' replaces a pointer by the weights it stands for",
        ) from error
    adapter = adapter_for(config)
    _check_loaded(checkpoint, adapter, loading, fresh_head=fresh_head or bool(prefix), prefix=prefix)
    module: nn.Module = model.eval()
    return module


def _load_shaped(
    checkpoint: Checkpoint, config: Any, shape: Shape, *, auto_class: str, attention: str, prefix: str, fresh_head: bool
) -> tuple[nn.Module, dict[str, Any]]:
    """Rebuilds a model whose shape stands in ``compression.json``."""
    adapter = adapter_for(config)
    # A head that the checkpoint does not fill keeps its random weights.
    with nullcontext() if fresh_head or prefix else without_random_numbers():
        model = shaped_model(auto_class, config, shape, adapter, attention=attention)
    missing = load_weights(model, checkpoint, adapter, prefix=prefix, fresh_head=fresh_head)
    return model, {"missing_keys": missing, "mismatched_keys": []}


def _check_loaded(
    checkpoint: Checkpoint, adapter: FamilyAdapter, loading: dict[str, Any], *, fresh_head: bool, prefix: str
) -> None:
    """Refuses a model of which more was initialised at random than a fresh head may be; names get ``prefix``."""
    unfilled = {f"{prefix}{x}" for x in (*loading["missing_keys"], *(name for name, *_ in loading["mismatched_keys"]))}
    body = sorted(name for name in unfilled if adapter.in_body(name))
    if body:
        raise ModelError(
            f"{checkpoint.path} has no fitting weights for {', '.join(body[:3])} ({len(body)} tensors); "
            f"expected a whole {adapter.model_type} encoder",
            remedy="check that the tensors' names and shapes are those of config.json's model_type",
        )
    if unfilled and not fresh_head:
        raise ModelError(
            f"{checkpoint.path} has no weights for {', '.join(sorted(unfilled)[:3])}; expected a trained classifier",
            remedy="train a classification head first (a recipe with a finetune stage does), or name the head it has "
            "with --task",
        )


def save_checkpoint(model: nn.Module, tokenizer_from: Path, output: Path) -> None:
    """Writes config, safetensors weights and the tokenizer files of ``tokenizer_from`` into ``output``.

    Where the config cannot say the model's shape, it is written into ``compression.json`` beside what stands there.
    """
    from transformers import AutoTokenizer

    quiet_transformers()
    shape = shape_of(model)
    if shape == plain_shape(model.config):
        model.save_pretrained(output)  # type: ignore[operator]
        write_shape(output, None)
    else:
        save_weights(model.encoder if isinstance(model, Embedder) else model, output)
        write_shape(output, shape)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_from, local_files_only=True, trust_remote_code=False)
    tokenizer.save_pretrained(output)


def unique_parameters(model: nn.Module) -> int:
    """Returns the number of parameters, each shared tensor counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def quiet_transformers() -> None:
    """Keeps the library's bars and advice off the terminal; what matters of it is checked and told here."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
