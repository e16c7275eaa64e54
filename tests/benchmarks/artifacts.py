"""A tiny artifact made by hand, so that measuring is tested apart from converting."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compressor.core.artifact import (
    IO,
    LABELS,
    Artifact,
    IOSpec,
    Manifest,
    ModelStatistics,
    Signature,
    TensorSpec,
    write_manifest,
)
from compressor.core.folders import write_json, write_marker
from tests.models import LABELS as NAMES
from tests.models import tiny_tokenizer

LENGTHS = (8, 16, 32)
FILE_NAMES = {"input_ids": "the_ids", "attention_mask": "the_mask"}


def tiny_graph(path: Path, *, depth: int = 1, width: int = 32) -> None:
    """Writes an ONNX classifier whose two inputs are of different types and named unlike the canonical names.

    Masked sum of the embeddings, ``depth`` square matmuls, 3 logits. The mask comes first, so that feeding by position
    fails, and is int32 where ids are int64, so that a wrong type fails too.
    """
    random = np.random.default_rng(0)
    square = {f"w{i}": random.normal(size=(width, width)).astype(np.float32) for i in range(depth)}
    weights = {
        "table": random.normal(size=(100, width)).astype(np.float32),
        "head": random.normal(size=(width, len(NAMES))).astype(np.float32),
        "last": np.array([2], dtype=np.int64),
        "tokens": np.array([1], dtype=np.int64),
        **square,
    }
    nodes = [
        helper.make_node("Gather", ["table", "the_ids"], ["embedded"]),
        helper.make_node("Cast", ["the_mask"], ["float_mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["float_mask", "last"], ["column"]),
        helper.make_node("Mul", ["embedded", "column"], ["kept"]),
    ]
    hidden = "kept"
    for name in square:
        nodes.append(helper.make_node("MatMul", [hidden, name], [f"{name}_out"]))
        hidden = f"{name}_out"
    nodes += [
        helper.make_node("ReduceSum", [hidden, "tokens"], ["pooled"], keepdims=0),
        helper.make_node("MatMul", ["pooled", "head"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("the_mask", TensorProto.INT32, [1, "tokens"]),
            helper.make_tensor_value_info("the_ids", TensorProto.INT64, [1, "tokens"]),
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, len(NAMES)])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def tiny_artifact(
    folder: Path,
    *,
    lengths: tuple[int, ...] = LENGTHS,
    depth: int = 1,
    width: int = 32,
    reference: dict[str, float] | None = None,
) -> Artifact:
    """Makes ``folder`` a whole artifact around :func:`tiny_graph`; its tokenizer is the one of ``tests.models``."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tiny_graph(folder / "model.onnx", depth=depth, width=width)
    tiny_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0}), encoding="utf-8")
    (folder / LABELS).write_text("\n".join(NAMES) + "\n", encoding="utf-8")
    signature = Signature(
        inputs=(
            TensorSpec(name="the_mask", dtype="int32", shape=(1, "tokens")),
            TensorSpec(name="the_ids", dtype="int64", shape=(1, "tokens")),
        ),
        outputs=(TensorSpec(name="logits", dtype="float32", shape=(1, 3)),),
        roles=FILE_NAMES,
    )
    io = IOSpec(max_tokens=32, lengths=lengths, pad_id=0, signatures=(signature,))
    write_json(folder / IO, io.model_dump(mode="json"))
    size = (folder / "model.onnx").stat().st_size
    statistics = ModelStatistics(
        format="onnx",
        precision="fp32",
        size_bytes=size,
        unique_parameter_bytes=size,
        parameters=size // 4,
        lengths=lengths,
        operators={"MatMul": depth + 1},
        gemm_types={"float32": depth + 1},
    )
    manifest = Manifest(
        format="onnx",
        precision="fp32",
        compute_precision="fp32",
        model_file="model.onnx",
        model_files=("model.onnx",),
        statistics=statistics,
        source={"checkpoint": "0" * 64, "name": "tiny"},
        reference={"teacher": 0.95, "checkpoint": 0.945, "artifact": 0.94, "examples": 700}
        if reference is None
        else reference,
        versions={},
        machine={},
        files={},
    )
    write_manifest(folder, manifest)
    write_marker(folder, "artifact")
    return Artifact.load(folder)
