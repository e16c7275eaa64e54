"""TFLite metadata of a text classifier: what MediaPipe and other readers of a single file need beside the graph.

The metadata is a flatbuffer of its own (``metadata_schema.fbs``, identifier ``M001``), kept in a buffer of the model
that the entry ``TFLITE_METADATA`` names. The files it speaks of (vocabulary, labels) stand in an uncompressed ZIP
archive after the model's flatbuffer, which a reader finds from the end of the file and a runtime never looks at.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

ENTRY = b"TFLITE_METADATA"
"""Name of the model's metadata entry (schema.fbs)."""
IDENTIFIER = b"M001"
VOCABULARY_FILE = "vocab.txt"
LABELS_FILE = "labels.txt"

_PARSER_VERSION = "1.1.0"
"""Of the metadata schema: the first that knows BertTokenizerOptions."""
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""The same model gives the same bytes."""

# Field numbers of metadata_schema.fbs, in the order of their declaration. A union takes two: its type, then its value.
_MODEL = {"name": 0, "description": 1, "subgraphs": 3, "min_parser_version": 7}
_SUBGRAPH = {"inputs": 2, "outputs": 3, "input_process_units": 5}
_TENSOR = {"name": 0, "description": 1, "content_type": 3, "associated_files": 6}
_CONTENT = {"type": 0, "value": 1}
_FILE = {"name": 0, "description": 1, "type": 2}
_UNIT = {"type": 0, "value": 1}
_BERT_OPTIONS = {"vocabulary": 0}
_FEATURE_PROPERTIES = 1
_BERT_TOKENIZER = 4
_AXIS_LABELS = 2
_VOCABULARY = 5

_Table = Mapping[int, Any]
"""Field number to a string, a small number, a table, or a list of tables."""


def classifier_metadata(*, name: str, description: str, inputs: Sequence[tuple[str, str]], output: str) -> bytes:
    """Returns the metadata of a BERT classifier with a WordPiece vocabulary.

    Args:
        name: the model's name.
        description: what it does, in a sentence.
        inputs: (name, description) of each input tensor in the graph's order; readers know the tensors of a BERT
            classifier by the names ``ids``, ``mask`` and ``segment_ids``.
        output: name of the score tensor.
    """
    content = {_CONTENT["type"]: _FEATURE_PROPERTIES, _CONTENT["value"]: {}}
    labels = {_FILE["name"]: LABELS_FILE, _FILE["description"]: "one label a line", _FILE["type"]: _AXIS_LABELS}
    vocabulary = {
        _FILE["name"]: VOCABULARY_FILE,
        _FILE["description"]: "one piece a line, the line's number is its id",
        _FILE["type"]: _VOCABULARY,
    }
    tokenizer = {_UNIT["type"]: _BERT_TOKENIZER, _UNIT["value"]: {_BERT_OPTIONS["vocabulary"]: [vocabulary]}}
    graph = {
        _SUBGRAPH["inputs"]: [_tensor(own, text, content) for own, text in inputs],
        _SUBGRAPH["outputs"]: [
            {**_tensor(output, "score of each label", content), _TENSOR["associated_files"]: [labels]}
        ],
        _SUBGRAPH["input_process_units"]: [tokenizer],
    }
    builder = flatbuffers.Builder(1024)
    root = _write(
        builder,
        {
            _MODEL["name"]: name,
            _MODEL["description"]: description,
            _MODEL["subgraphs"]: [graph],
            _MODEL["min_parser_version"]: _PARSER_VERSION,
        },
    )
    builder.Finish(root, file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def store_metadata(model: Any, metadata: bytes) -> None:
    """Puts metadata into a ``ModelT``, in place of older metadata of the same kind."""
    from ai_edge_litert import schema_py_generated as schema

    model.metadata = [entry for entry in model.metadata or () if entry.name != ENTRY]
    model.buffers.append(schema.BufferT(data=np.frombuffer(metadata, dtype=np.uint8)))
    model.metadata.append(schema.MetadataT(name=ENTRY, buffer=len(model.buffers) - 1))


def append_files(content: bytes, files: Mapping[str, bytes]) -> bytes:
    """Returns a finished model file with associated files after it."""
    stream = io.BytesIO(content)
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), data)
    return stream.getvalue()


def _tensor(name: str, description: str, content: _Table) -> dict[int, Any]:
    return {_TENSOR["name"]: name, _TENSOR["description"]: description, _TENSOR["content_type"]: content}


def _write(builder: flatbuffers.Builder, value: Any) -> int:
    """Writes a string, a list of tables or a table with everything below it, and returns its offset."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, list):
        items = [_write(builder, item) for item in value]
        builder.StartVector(4, len(items), 4)
        for offset in reversed(items):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    offsets = {field: _write(builder, item) for field, item in value.items() if not isinstance(item, int)}
    builder.StartObject(1 + max(value, default=-1))
    for field, item in value.items():
        if isinstance(item, int):
            builder.PrependUint8Slot(field, item, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(field, offsets[field], 0)
    return int(builder.EndObject())
