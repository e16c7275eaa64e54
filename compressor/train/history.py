"""The history in ``compression.json``: what was done to a model, carried from checkpoint to checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compressor.core.checkpoint import COMPRESSION, Checkpoint
from compressor.core.folders import write_json
from compressor.shapes import SHAPE


def write_history(output: Path, source: Checkpoint, entry: dict[str, Any]) -> None:
    """Writes the ``compression.json`` of ``source`` into ``output`` with one more entry in its ``history``.

    Args:
        output: the new checkpoint's folder.
        source: the checkpoint it was made from; its other keys are carried unchanged, but for the shape, which is the
            new weights' own and already written beside them.
        entry: ``stage`` and what it did, JSON-serialisable.
    """
    record = {**source.compression, SHAPE: Checkpoint(output).compression.get(SHAPE)}
    if record[SHAPE] is None:
        del record[SHAPE]
    history = [*record.pop("history", []), entry]
    write_json(output / COMPRESSION, {"schema_version": 1, **record, "history": history})
