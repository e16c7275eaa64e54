"""An ONNX graph that takes the text itself: the tokenizer is an operator of onnxruntime-extensions in front of it.

``BertTokenizer`` (domain ``ai.onnx.contrib``) gives the token ids of one text, specials and all, cut to a number of
tokens. It lowers and strips fewer scripts than the tokenizers library does, and reads special tokens in a text as
letters; whoever uses it has to compare ids on texts of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from compressor.core.artifact import Signature
from compressor.core.errors import ArtifactError
from compressor.text import ATTENTION_MASK, INPUT_IDS, TOKEN_TYPE_IDS
from export.wordpiece import vocabulary

DOMAIN = "ai.onnx.contrib"
TEXT = "text"
"""Name of the graph's only input, a string tensor of shape (1,)."""


def take_text(model: ir.Model, signature: Signature, tokenizer: dict[str, Any], *, max_tokens: int) -> None:
    """Replaces the inputs of a graph by one text, in place.

    Args:
        model: a graph with int64 inputs of shape (batch, tokens).
        signature: names of its inputs.
        tokenizer: content of ``tokenizer.json``, which :func:`export.wordpiece.refusal` does not refuse.
        max_tokens: longer texts are cut to this number of tokens, specials included.
    """
    graph = model.graph
    text = ir.Value(name=TEXT, type=ir.TensorType(ir.DataType.STRING), shape=ir.Shape([1]))
    outputs = [ir.Value(name=f"tokenizer/{name}") for name in (INPUT_IDS, TOKEN_TYPE_IDS, ATTENTION_MASK)]
    nodes = [ir.node("BertTokenizer", [text], _attributes(tokenizer, max_tokens), domain=DOMAIN, outputs=outputs)]
    axis = ir.Value(name="tokenizer/batch_axis", const_value=ir.tensor(np.zeros(1, np.int64)))
    graph.register_initializer(axis)
    tokens = dict(zip((INPUT_IDS, TOKEN_TYPE_IDS, ATTENTION_MASK), outputs, strict=True))
    inputs = {value.name: value for value in graph.inputs}
    for canonical, name in signature.roles.items():
        row = ir.Value(name=name)
        inputs[name].replace_all_uses_with(row)
        nodes.append(ir.node("Unsqueeze", [tokens[canonical], axis], outputs=[row]))
    graph.inputs[:] = [text]
    graph.insert_before(graph[0], nodes)
    graph.opset_imports[DOMAIN] = 1


def _attributes(tokenizer: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    pieces, normalizer = vocabulary(tokenizer), tokenizer["normalizer"]
    strips = normalizer.get("strip_accents")
    return {
        "vocab_file": "\n".join(pieces),
        "do_lower_case": int(normalizer["lowercase"]),
        "strip_accents": int(normalizer["lowercase"] if strips is None else strips),
        "tokenize_chinese_chars": int(normalizer["handle_chinese_chars"]),
        "max_length": max_tokens,
        # It asks for one even where no text can hold it.
        "mask_token": "[MASK]" if "[MASK]" in pieces else "[UNK]",
        "pad_token": "[PAD]" if "[PAD]" in pieces else "[UNK]",
    }


class TextSession:
    """ONNX Runtime with the operators of onnxruntime-extensions, on one thread.

    Args:
        path: a file whose input is :data:`TEXT`.

    Raises:
        ArtifactError: ONNX Runtime refuses the file.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime as ort
        from onnxruntime_extensions import get_library_path

        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.register_custom_ops_library(get_library_path())
        try:
            self._session: Any = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's error classes have no common base
            raise ArtifactError(f"ONNX Runtime does not load {path}: {error}", remedy="convert again") from error

    def run(self, text: str) -> list[np.ndarray]:
        """Returns the graph's outputs for one text, in their order."""
        return list(self._session.run(None, {TEXT: np.array([text])}))
