"""P30: int64 ids make mobile delegates reject a graph; a TFLite file takes int32, and its description says so."""

from export.tflite.flatbuffer import is_constant, read, type_names
from tests.export.tflite.samples import BACKEND, sample


def test_tflite_inputs_are_int32_in_every_signature_and_precision():
    made = sample("bert")
    for folder in (made.fp32, made.reduced("fp16"), made.reduced("int8")):
        signatures = BACKEND.signatures(folder)
        assert [signature.length for signature in signatures] == [8, 16]
        for signature in signatures:
            assert signature.key == f"seq_{signature.length}"
            assert {spec.dtype for spec in signature.inputs} == {"int32"}
            assert {spec.shape for spec in signature.inputs} == {(1, signature.length)}
            assert [(spec.name, spec.dtype, spec.shape) for spec in signature.outputs] == [
                ("logits", "float32", (1, 3))
            ]
            assert signature.roles == {name: name for name in ("input_ids", "attention_mask", "token_type_ids")}


def test_no_tensor_inside_is_int64():
    for family in ("bert", "roberta", "deberta-v2"):
        converted = read(sample(family).fp32 / "model.tflite")
        wide = [
            index
            for graph in converted.subgraphs
            for index, tensor in enumerate(graph.tensors)
            if type_names()[tensor.type] == "int64" and not is_constant(converted, tensor)
        ]
        assert not wide


def test_int64_batches_are_cast_once_by_the_predictor():
    made = sample("roberta")
    assert all(values.dtype == "int64" for values in made.batches()[0].values())
    assert made.error(made.fp32) <= 1e-4
