"""One conversion for every length."""

import logging
from unittest.mock import patch

import numpy as np
import pytest
import torch

from export.tflite import convert
from export.tflite.convert import convert_model, signature_key
from export.tflite.flatbuffer import is_constant, operator_name, parse, shape_of, type_names
from export.tflite.lengths import NotDerivableError, check_answers, derive_lengths, probe_length
from tests.export.tflite.samples import BACKEND, open_folder, sample


def operators(content: bytes, length: int) -> list[tuple]:
    """What an entry point computes: operators in order, with sizes, types, options and constants."""
    model = parse(content)
    entry = next(s for s in model.signatureDefs if s.signatureKey == signature_key(length).encode())
    graph = model.subgraphs[entry.subgraphIndex]
    names = [(tensor.name, graph.tensors[tensor.tensorIndex].name) for tensor in (*entry.inputs, *entry.outputs)]

    def operand(index: int) -> object:
        if index < 0:
            return None
        tensor = graph.tensors[index]
        content = model.buffers[tensor.buffer].data.tobytes() if is_constant(model, tensor) else None
        return type_names()[tensor.type], shape_of(tensor), content

    return names + [
        (operator_name(model, op), [operand(int(i)) for i in (*op.inputs, *op.outputs)], _options(op))
        for op in graph.operators
    ]


def _options(operator) -> dict | None:
    return vars(operator.builtinOptions) if operator.builtinOptions else None


@pytest.mark.parametrize("family", ["roberta", "mobilebert"])
def test_a_length_that_follows_is_the_graph_that_a_conversion_of_its_own_gives(family):
    made = sample(family)
    alone = convert_model(made.model, made.spec.model_copy(update={"lengths": (16,)}))
    both = (made.fp32 / "model.tflite").read_bytes()
    for mine, theirs in zip(operators(both, 16), operators(alone, 16), strict=True):
        assert mine == theirs


@pytest.mark.parametrize("family", ["bert", "deberta-v2"])
def test_a_model_is_lowered_once_however_many_lengths(family, tmp_path):
    made = sample(family)
    spec = made.spec.model_copy(update={"lengths": (2, 8, 20, 30)})
    with patch.object(convert, "trace", side_effect=convert.trace) as lowered:
        BACKEND.convert(made.model, spec, tmp_path)
    assert [call.args[1] for call in lowered.call_args_list] == [(31,)]
    predictor = open_folder(tmp_path, spec)
    encoded = made.encoder.encode(["where is my order", ""])
    for length in spec.lengths[1:]:
        batch = made.encoder.pad(encoded, length)
        np.testing.assert_allclose(predictor.logits(batch), made.reference(batch), atol=1e-4)


def test_a_probe_is_no_size_of_the_model_and_within_its_positions():
    model = sample("bert").model  # 64 positions
    assert probe_length(model, (8, 16)) == 17
    assert probe_length(model, (8, 32)) == 37  # the next prime; 32 is a size, so neither 2 nor 33 would do
    assert probe_length(model, (8, 64)) is None  # only the 8 could follow from 61
    assert probe_length(model, (8, 16, 64)) == 61
    assert probe_length(model, (16,)) is None
    model.config.neighbour = 16
    assert probe_length(model, (8, 16)) == 19
    del model.config.neighbour


def test_a_graph_with_parts_of_its_own_or_a_mixed_constant_is_left_to_the_converter():
    made = sample("bert")
    lowered = convert.trace(made.model, (17,), made.spec)
    parts, mixed = parse(lowered), parse(lowered)
    parts.subgraphs.append(parts.subgraphs[0])
    table = next(t for t in mixed.subgraphs[0].tensors if shape_of(t) == (1, 17, 32) and is_constant(mixed, t))
    table.shape = [34, 16]
    for converted, reason in ((parts, "parts of its own"), (mixed, r"constant of shape \(34, 16\)")):
        with pytest.raises(NotDerivableError, match=reason):
            derive_lengths(converted, {"seq_8": 8}, "seq_17", 17)


def count_from_the_end(module, arguments, inputs):
    """Gives the last token position 0, which no cut of a longer model's constants does."""
    return arguments, {**inputs, "position_ids": torch.arange(inputs["input_ids"].shape[1]).flip(0)[None]}


def test_a_length_that_does_not_follow_is_lowered_by_itself(caplog):
    made = sample("bert")
    hook = made.model.register_forward_pre_hook(count_from_the_end, with_kwargs=True)
    try:
        with caplog.at_level(logging.INFO):
            content = convert_model(made.model, made.spec)
        assert "bert is converted at each length by itself: logits at 8 tokens is off by" in caplog.text
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        check_answers(content, made.model, made.spec)
    finally:
        hook.remove()
    with pytest.raises(NotDerivableError):
        check_answers(content, made.model, made.spec)


def test_a_file_that_the_runtime_refuses_is_no_error_of_the_user(caplog):
    """Were the head's size taken for a length, shapes would no longer fit."""
    made = sample("bert")
    with (
        patch("export.tflite.convert.probe_length", return_value=9),  # heads are 8 wide
        caplog.at_level(logging.INFO),
    ):
        content = convert_model(made.model, made.spec.model_copy(update={"lengths": (4, 6)}))
    assert "the runtime refuses it" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert probe_length(made.model, (4, 6)) == 7
    check_answers(content, made.model, made.spec.model_copy(update={"lengths": (4, 6)}))
