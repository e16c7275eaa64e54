"""From a PyTorch classifier to one FP32 TFLite file with an entry point for each length, all sharing the weights."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from compressor.core.errors import ModelError
from export.backend import ConversionSpec
from export.tflite.compact import compact
from export.tflite.flatbuffer import parse
from export.tflite.modules import find_modules
from export.tflite.quiet import quiet_native
from export.tflite.wrapper import FixedLengthClassifier, sample_inputs, unfolded_norms


def signature_key(length: int) -> str:
    """Returns the name of the entry point of one length."""
    return f"seq_{length}"


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
    converted = parse(trace(model, spec))
    return compact(converted, find_modules(converted, model))


def trace(model: nn.Module, spec: ConversionSpec) -> bytes:
    """Returns litert-torch's own file for ``model``, before any step of ours.

    Raises:
        ModelError: litert-torch cannot convert the model.
    """
    import litert_torch

    wrapper = FixedLengthClassifier(model, spec).eval()
    frozen = [parameter for parameter in wrapper.parameters() if parameter.requires_grad]
    converter = litert_torch
    for length in spec.lengths:
        converter = converter.signature(signature_key(length), wrapper, sample_kwargs=sample_inputs(spec, length))
    try:
        # A tracer records far less for parameters that want no gradient.
        for parameter in frozen:
            parameter.requires_grad_(False)
        with TemporaryDirectory(prefix="compressor-tflite-") as scratch:
            file = Path(scratch, "traced.tflite")
            with quiet_native(), torch.no_grad(), unfolded_norms(model):
                converter.convert().export(str(file))
            return file.read_bytes()
    except (RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"litert-torch could not convert this {spec.model_type} model: {first_line}",
            remedy="run again with --debug for the whole message; check that PyTorch itself runs the model",
        ) from error
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
