"""One conversion for every length: the graph of a probe length, cut to each length that is wanted.

Lowering a graph takes a converter minutes and gives, for another length, the same operators with other sizes. So the
model is lowered once, at a prime number of tokens that is no size of the model itself: a size in the graph that is a
multiple of it comes from the length and nothing else, and a constant along it (rows of a position table, DeBERTa's
distances) holds at least as much as any shorter length needs. What comes out is run beside PyTorch before it is used,
for a model could count positions from the end, or hold a size that depends on the length in another way.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from compressor import shapes
from compressor.families import adapter_for
from compressor.text import ATTENTION_MASK, INPUT_IDS
from export.backend import ConversionSpec
from export.tflite.flatbuffer import is_constant, operator_name, shape_of, text, type_names
from export.tflite.quiet import quiet_native
from export.tflite.wrapper import FixedLengthModel, sample_inputs

_SIZE_OPERANDS: dict[str, tuple[int, ...]] = {
    "BROADCAST_TO": (1,),
    "FILL": (0,),
    "PAD": (1,),
    "RESHAPE": (1,),
    "SLICE": (1, 2),
    "STRIDED_SLICE": (1, 2),
    "TILE": (1,),
}
"""Operands that hold sizes or places (schema.fbs lists an operator's inputs in order)."""

_TOLERANCE = 1e-3
"""Of an output's largest value; float32 rounding gives 1e-5, a wrong position or mask changes the answer."""


class NotDerivableError(Exception):
    """A size of the graph cannot be told apart from a length, or cut to one; the model is lowered at each length."""


def probe_length(model: nn.Module, lengths: Sequence[int]) -> int | None:
    """Returns a length to lower ``model`` at, from which others follow.

    Args:
        model: a model with its config.
        lengths: ascending lengths that are wanted.

    Returns:
        The smallest prime that is at least the longest length, or the largest that the model takes, and that could not
        be taken for a size of the model; None where fewer than two of ``lengths`` would follow from it.
    """
    config: Any = model.config
    sizes = {size for parameter in model.parameters() for size in parameter.shape}
    sizes |= {value for value in config.to_dict().values() if isinstance(value, int)}
    shape = shapes.shape_of(model)
    sizes |= {shape.head_size, *(layer.heads for layer in shape.layers)}
    usable = [
        number
        for number in range(2, adapter_for(config).max_tokens(config) + 1)
        if _is_prime(number) and not any(size % number == 0 or size == number - 1 for size in sizes if size > 0)
    ]
    if not usable:
        return None
    probe = next((number for number in usable if number >= lengths[-1]), usable[-1])
    return probe if sum(length <= probe for length in lengths) > 1 else None


def derive_lengths(converted: Any, keys: Mapping[str, int], probe_key: str, probe: int) -> None:
    """Gives a file one entry point for each wanted length, in place of the probe's.

    Args:
        converted: the ``ModelT`` of a file with an entry point for ``probe`` tokens and for every longer length.
        keys: entry points that are wanted, with their numbers of tokens.
        probe_key: name of the probe's entry point.
        probe: see :func:`probe_length`.

    Raises:
        NotDerivableError: the file has more subgraphs than entry points, or a size that cannot be cut.
    """
    if len(converted.subgraphs) != len(converted.signatureDefs):
        raise NotDerivableError("the graph has parts of its own")
    lowered = {text(signature.signatureKey): signature for signature in converted.signatureDefs}
    graphs: list[Any] = []
    signatures: list[Any] = []
    for key, length in keys.items():
        signature = copy.deepcopy(lowered.get(key, lowered[probe_key]))
        graph = converted.subgraphs[signature.subgraphIndex]
        if key not in lowered:
            graph = _cut_to(converted, graph, probe, length)
            for tensor in (graph.tensors[index] for index in (*graph.inputs, *graph.outputs)):
                tensor.name = text(tensor.name).replace(probe_key, key).encode()
            graph.name = key.encode()
        signature.signatureKey, signature.subgraphIndex = key.encode(), len(graphs)
        graphs.append(graph)
        signatures.append(signature)
    converted.subgraphs, converted.signatureDefs = graphs, signatures


def check_answers(content: bytes, model: nn.Module, spec: ConversionSpec) -> None:
    """Runs random tokens, a quarter of them padding, at every length, in PyTorch and from the file.

    Raises:
        NotDerivableError: an output is not PyTorch's.
    """
    wrapper = FixedLengthModel(model, spec).eval()
    vocabulary = adapter_for(model.config).word_embedding(model).num_embeddings
    generator = torch.Generator().manual_seed(0)
    batches = {}
    for length in spec.lengths:
        batch, real = sample_inputs(spec, length), length * 3 // 4 + 1
        batch[INPUT_IDS][:] = spec.pad_id
        batch[INPUT_IDS][:, :real] = torch.randint(vocabulary, (1, real), generator=generator, dtype=torch.int32)
        batch[ATTENTION_MASK][:, :real] = 1
        batches[length] = batch
    for length, answers in _answers(content, batches).items():
        with torch.no_grad():
            wanted = wrapper(**batches[length])
        for name, values in wanted.items():
            error = (torch.from_numpy(answers[name]) - values).abs().max()
            if not error <= _TOLERANCE * values.abs().max():
                raise NotDerivableError(f"{name} at {length} tokens is off by {error:.1e}")


def _answers(content: bytes, batches: Mapping[int, dict[str, torch.Tensor]]) -> dict[int, dict[str, np.ndarray]]:
    """Returns length to what the file gives for its batch."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    # Without its delegate the runtime makes no second copy of the weights.
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    with quiet_native():
        try:
            interpreter = Interpreter(model_content=content, experimental_op_resolver_type=resolver, num_threads=1)
            runners = map(interpreter.get_signature_runner, interpreter.get_signature_list())
            by_length = {int(run.get_input_details()[INPUT_IDS]["shape"][1]): run for run in runners}
            return {
                length: by_length[length](**{name: values.numpy() for name, values in batch.items()})
                for length, batch in batches.items()
            }
        except (RuntimeError, ValueError) as error:
            refused = error  # what leaves the block as an exception is logged as a failed conversion
    raise NotDerivableError(f"the runtime refuses it: {refused}") from refused


def _cut_to(converted: Any, graph: Any, probe: int, length: int) -> Any:
    """Returns a copy of a subgraph for fewer tokens; constants it cuts are added to ``converted`` as new buffers.

    Args:
        converted: the ``ModelT`` that ``graph`` is part of.
        graph: a ``SubGraphT`` for ``probe`` tokens.
        probe: see :func:`probe_length`.
        length: number of tokens, at most ``probe``.

    Raises:
        NotDerivableError: a constant holds the length in a way that cannot be cut.
    """
    shorter = copy.deepcopy(graph)
    sizes = set(_size_constants(converted, graph))
    for index, tensor in enumerate(shorter.tensors):
        if is_constant(converted, tensor):
            values = _values(converted, tensor)
            changed = _resized(values, probe, length) if index in sizes else _cropped(values, probe, length)
            if changed is not values:
                tensor.buffer = _add_buffer(converted, changed)
        tensor.shape = _resized(np.asarray(shape_of(tensor), np.int32), probe, length)
        if tensor.shapeSignature is not None:
            tensor.shapeSignature = _resized(np.asarray(tensor.shapeSignature, np.int32), probe, length)
    for operator in shorter.operators:
        if getattr(operator.builtinOptions, "newShape", None) is not None:
            operator.builtinOptions.newShape = _resized(np.asarray(operator.builtinOptions.newShape), probe, length)
    return shorter


def _size_constants(converted: Any, graph: Any) -> Iterator[int]:
    for operator in graph.operators:
        for position in _SIZE_OPERANDS.get(operator_name(converted, operator), ()):
            if position < len(operator.inputs):
                yield int(operator.inputs[position])


def _resized(sizes: np.ndarray, probe: int, length: int) -> np.ndarray:
    """Returns sizes with every factor ``probe``, and ``probe - 1``, in terms of ``length``; the same array if none."""
    flat = [_resized_size(int(size), probe, length) for size in sizes.flat]
    changed = np.asarray(flat, sizes.dtype).reshape(sizes.shape)
    return sizes if np.array_equal(changed, sizes) else changed


def _resized_size(size: int, probe: int, length: int) -> int:
    if size == probe - 1:
        return length - 1  # a neighbour's view, such as MobileBERT's next and last token
    factor = 1
    while size > 0 and size % probe == 0:
        size //= probe
        factor *= length
    return size * factor


def _cropped(values: np.ndarray, probe: int, length: int) -> np.ndarray:
    """Returns the part of a constant that belongs to the first ``length`` tokens; the same array if it has none."""
    wanted = [_resized_size(size, probe, length) for size in values.shape]
    if list(values.shape) == wanted:
        return values
    if any(size not in (probe, probe - 1) for size, cut in zip(values.shape, wanted, strict=True) if size != cut):
        raise NotDerivableError(f"a constant of shape {values.shape} mixes the length with another size")
    return np.ascontiguousarray(values[tuple(slice(size) for size in wanted)])


def _values(converted: Any, tensor: Any) -> np.ndarray:
    name = type_names()[tensor.type]
    content = np.asarray(converted.buffers[tensor.buffer].data, np.uint8)
    return content.view(np.dtype(name)).reshape(shape_of(tensor))


def _add_buffer(converted: Any, values: np.ndarray) -> int:
    from ai_edge_litert import schema_py_generated as schema

    converted.buffers.append(schema.BufferT(data=np.frombuffer(values.tobytes(), np.uint8)))
    return len(converted.buffers) - 1


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))
