"""One length of a TFLite artifact as a file that MediaPipe's text classifier takes: text in, scores out.

MediaPipe runs the first graph of a file and shows its output as it is, so the file holds one length and its last
operator turns logits into scores. Its tokenizer is BERT's WordPiece with lower case and [PAD] at 0; a model with
another tokenizer is refused with the reason, because MediaPipe would answer without complaint, and wrongly.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from compressor.core.artifact import IOSpec, Signature
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from export import wordpiece
from export.tflite.compact import merge_buffers, pack, strip
from export.tflite.metadata import LABELS_FILE, VOCABULARY_FILE, append_files, classifier_metadata, store_metadata

SCORES = "scores"
_NAMES = {
    INPUT_IDS: ("ids", "token ids, [CLS] text [SEP], then zeros"),
    ATTENTION_MASK: ("mask", "1 for a token, 0 for padding"),
    TOKEN_TYPE_IDS: ("segment_ids", "0 for a single text"),
}
"""Canonical input to the name and the description by which readers of the metadata know it."""


def refusal(tokenizer: dict[str, Any], io: IOSpec) -> str | None:
    """Returns why MediaPipe's text classifier cannot run a model, or None where it can.

    Args:
        tokenizer: content of ``tokenizer.json``.
        io: what the model takes.
    """
    if (unlike := wordpiece.refusal(tokenizer, io)) is not None:
        return f"{unlike}, which is all MediaPipe's classifier knows"
    if not tokenizer["normalizer"].get("lowercase"):
        return "its tokenizer keeps upper case; MediaPipe lowers every text"
    if tokenizer["model"]["vocab"].get("[PAD]") != 0 or io.pad_id != 0:
        return "its special tokens are not BERT's: [PAD] is not at 0"
    return None


def mediapipe_model(
    model: Any, signature: Signature, *, vocabulary: Sequence[str], labels: Sequence[str], activation: str, name: str
) -> bytes:
    """Returns the content of the single-length file.

    Args:
        model: the artifact's ``ModelT``; left as it is.
        signature: the entry point to keep, with a fixed length.
        vocabulary: the pieces in the order of their ids.
        labels: label names in the order of the logits.
        activation: ``softmax``, ``sigmoid`` or ``identity``: what turns logits into scores.
        name: the model's name, for the metadata.
    """
    single = _single_graph(model, str(signature.key))
    graph, entry = single.subgraphs[0], single.signatureDefs[0]
    roles = {own: canonical for canonical, own in signature.roles.items()}
    order = {int(item.tensorIndex): roles[item.name.decode()] for item in entry.inputs}
    if TOKEN_TYPE_IDS not in order.values():
        order[_add_token_types(graph, entry)] = TOKEN_TYPE_IDS
    _add_activation(single, activation)
    merge_buffers(single)
    strip(single)
    metadata = classifier_metadata(
        name=name,
        description="Gives a text one score for each label.",
        inputs=[_NAMES[order[int(index)]] for index in graph.inputs],
        output=SCORES,
    )
    store_metadata(single, metadata)
    # Last: a metadata writer repacks the file and would write every shared table out again.
    content = pack(single)
    return append_files(content, {LABELS_FILE: _lines(labels), VOCABULARY_FILE: _lines(vocabulary)})


def _lines(values: Sequence[str]) -> bytes:
    return "".join(f"{value}\n" for value in values).encode()


def _single_graph(model: Any, key: str) -> Any:
    """Returns a model with the graph of one entry point; constants are the same objects."""
    entry = copy.deepcopy(next(item for item in model.signatureDefs if item.signatureKey.decode() == key))
    single = copy.copy(model)
    single.subgraphs = [copy.deepcopy(model.subgraphs[entry.subgraphIndex])]
    single.buffers = list(model.buffers)
    single.operatorCodes = list(model.operatorCodes)
    single.metadata = [copy.copy(item) for item in model.metadata or ()]
    entry.subgraphIndex = 0
    single.signatureDefs = [entry]
    return single


def _add_token_types(graph: Any, entry: Any) -> int:
    """Adds an input that nothing reads, for a model without token types: MediaPipe feeds three."""
    from ai_edge_litert import schema_py_generated as schema

    first = graph.tensors[int(entry.inputs[0].tensorIndex)]
    graph.tensors.append(
        schema.TensorT(shape=first.shape, type=first.type, buffer=0, name=TOKEN_TYPE_IDS.encode(), hasRank=True)
    )
    index = len(graph.tensors) - 1
    graph.inputs = np.append(graph.inputs, index)
    entry.inputs.append(schema.TensorMapT(name=TOKEN_TYPE_IDS.encode(), tensorIndex=index))
    return index


def _add_activation(model: Any, activation: str) -> None:
    from ai_edge_litert import schema_py_generated as schema

    graph, (output,) = model.subgraphs[0], model.signatureDefs[0].outputs
    if activation == "identity":
        return
    operator = schema.OperatorT(inputs=np.array([output.tensorIndex]))
    if activation == "softmax":
        code = schema.BuiltinOperator.SOFTMAX
        operator.builtinOptionsType = schema.BuiltinOptions.SoftmaxOptions
        operator.builtinOptions = schema.SoftmaxOptionsT(beta=1.0)
    else:
        code = schema.BuiltinOperator.LOGISTIC
    scores = copy.deepcopy(graph.tensors[int(output.tensorIndex)])
    scores.name = SCORES.encode()
    graph.tensors.append(scores)
    operator.outputs = np.array([len(graph.tensors) - 1])
    model.operatorCodes.append(schema.OperatorCodeT(deprecatedBuiltinCode=code, builtinCode=code, version=1))
    operator.opcodeIndex = len(model.operatorCodes) - 1
    graph.operators = [*graph.operators, operator]
    graph.outputs = operator.outputs
    output.tensorIndex, output.name = int(operator.outputs[0]), SCORES.encode()
