"""From a PyTorch classifier to one FP32 TFLite file with an entry point for each length, all sharing the weights."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from compressor.core.errors import ModelError
from export.backend import ConversionSpec
from export.tflite.compact import compact
from export.tflite.flatbuffer import read
from export.tflite.modules import find_modules
from export.tflite.quiet import quiet_native
from export.tflite.wrapper import FixedLengthClassifier, sample_inputs

_KEY = re.compile(r"seq_(\d+)")


def signature_key(length: int) -> str:
    """Returns the name of the entry point of one length."""
    return f"seq_{length}"


def length_of_key(key: str) -> int | None:
    """Returns the length an entry point is named for, or None where it has another name."""
    match = _KEY.fullmatch(key)
    return int(match[1]) if match else None


def convert_model(model: nn.Module, spec: ConversionSpec) -> bytes:
    """Converts ``model`` at every length of ``spec``.

    Args:
        model: a sequence classifier with eager attention, in evaluation mode, on the CPU.
        spec: lengths and inputs.

    Returns:
        The compact file, with the module path of every weight in its metadata.

    Raises:
        ModelError: litert-torch cannot convert the model.
    """
    with quiet_native(), TemporaryDirectory(prefix="compressor-tflite-") as scratch:
        named = Path(scratch, "named.tflite")
        try:
            _export(FixedLengthClassifier(model, spec).eval(), spec, named)
        except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError) as error:
            first_line = next(iter(str(error).splitlines()), type(error).__name__)
            raise ModelError(
                f"litert-torch could not convert this {spec.model_type} model: {first_line}",
                remedy="run again with --debug for the whole message; check that PyTorch itself runs the model",
            ) from error
        converted = read(named)
    return compact(converted, find_modules(converted, model))


def _export(wrapper: nn.Module, spec: ConversionSpec, output: Path) -> None:
    import litert_torch

    frozen = [parameter for parameter in wrapper.parameters() if parameter.requires_grad]
    converter = litert_torch
    for length in spec.lengths:
        converter = converter.signature(signature_key(length), wrapper, sample_kwargs=sample_inputs(spec, length))
    try:
        # A tracer records far less for parameters that want no gradient.
        for parameter in frozen:
            parameter.requires_grad_(False)
        with torch.no_grad():
            converter.convert().export(str(output))
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
