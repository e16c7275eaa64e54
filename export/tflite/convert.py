"""From a PyTorch model to one FP32 TFLite file with an entry point for each length, all sharing the weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from compressor.core.errors import CompressorError, ModelError, StageError
from export.backend import ConversionSpec
from export.memory import return_freed_memory
from export.tflite.compact import compact
from export.tflite.flatbuffer import integer_constant_bytes, parse
from export.tflite.lengths import NotDerivableError, check_answers, derive_lengths, probe_length
from export.tflite.modules import find_modules
from export.tflite.quiet import quiet_native
from export.tflite.wrapper import FixedLengthModel, sample_inputs, unfolded_norms

logger = logging.getLogger(__name__)

_MAX_GROWTH = 1.1
"""Each length keeps the rows of a position table that it needs, and small constants are computed ahead."""
_GRAPH_BYTES_AN_OPERATOR = 64
"""Room for what is no weight: operators, shapes and positions; it only matters for very small models."""


def signature_key(length: int) -> str:
    """Returns the name of the entry point of one length."""
    return f"seq_{length}"


def convert_model(model: nn.Module, spec: ConversionSpec) -> bytes:
    """Converts ``model`` at every length of ``spec``.

    Args:
        model: a model with its head, eager attention, in evaluation mode, on the CPU.
        spec: lengths and inputs.

    Returns:
        The compact file, with the module path of every weight in its metadata.

    Raises:
        ModelError: litert-torch cannot convert the model, or the result does not fit one TFLite file (2 GiB).
    """
    with _conversion_errors(spec):
        probe = probe_length(model, spec.lengths)
        if probe is not None:
            try:
                return _from_one_length(model, spec, probe)
            except NotDerivableError as reason:
                logger.info("%s is converted at each length by itself: %s", spec.model_type, reason)
        converted = parse(trace(model, spec.lengths, spec))
        return compact(converted, find_modules(converted, model))


def _from_one_length(model: nn.Module, spec: ConversionSpec, probe: int) -> bytes:
    """Returns the file for every length, lowered at ``probe`` and at those lengths beyond it.

    Raises:
        NotDerivableError: a length does not follow from ``probe``, or its answers are not PyTorch's.
    """
    lowered = (probe, *(length for length in spec.lengths if length > probe))
    converted = parse(trace(model, lowered, spec))
    modules = find_modules(converted, model)
    derive_lengths(converted, {signature_key(length): length for length in spec.lengths}, signature_key(probe), probe)
    content = compact(converted, modules)
    check_answers(content, model, spec)
    return content


def check_size(content: bytes, model: nn.Module) -> None:
    """Proves that a weight which is shared in PyTorch, or read at several lengths, is stored once.

    Args:
        content: the FP32 file.
        model: what it was made from.

    Raises:
        StageError: the file is larger than the model's unique parameters and its graph allow.
    """
    unique = sum({p.data_ptr(): p.numel() * p.element_size() for p in model.parameters()}.values())
    converted = parse(content)
    operators = sum(len(graph.operators) for graph in converted.subgraphs)
    limit = int(_MAX_GROWTH * unique) + _GRAPH_BYTES_AN_OPERATOR * operators + integer_constant_bytes(converted)
    if len(content) > limit:
        raise StageError(
            f"the TFLite file holds {len(content) / 1e6:.1f} MB; expected at most {limit / 1e6:.1f} MB for "
            f"{unique / 1e6:.1f} MB of unique parameters: a shared weight is stored more than once",
            remedy="report this model",
        )


@contextmanager
def _conversion_errors(spec: ConversionSpec) -> Iterator[None]:
    """Turns what converter and schema raise into ModelError; the project's own errors pass as they are."""
    try:
        yield
    except CompressorError:
        raise
    except Exception as error:  # torch, litert-torch, MLIR, struct and flatbuffers raise classes of their own
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(
            f"litert-torch could not convert this {spec.model_type} model: {first_line}",
            remedy="run again with --debug for the whole message; check that PyTorch itself runs the model",
        ) from error


def trace(model: nn.Module, lengths: Sequence[int], spec: ConversionSpec) -> bytes:
    """Returns litert-torch's own file at ``lengths``, before any step of ours; its errors come as they are."""
    import litert_torch

    wrapper = FixedLengthModel(model, spec).eval()
    frozen = [parameter for parameter in wrapper.parameters() if parameter.requires_grad]
    converter = litert_torch
    for length in lengths:
        converter = converter.signature(signature_key(length), wrapper, sample_kwargs=sample_inputs(spec, length))
    try:
        # A tracer records far less for parameters that want no gradient.
        for parameter in frozen:
            parameter.requires_grad_(False)
        with TemporaryDirectory(prefix="compressor-tflite-") as scratch:
            file = Path(scratch, "traced.tflite")
            with quiet_native(), torch.no_grad(), unfolded_norms(model):
                converter.convert().export(str(file))
            return_freed_memory()
            return file.read_bytes()
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
