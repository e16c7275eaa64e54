"""What differs between the formats that start from an ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """How a model is traced; free of PyTorch, which what only reads a file need not load."""

    opset: int
    integer: Literal["int32", "int64"]
    """Type of the token ids: int64 for ONNX users, int32 for TensorRT and NPUs."""
    dynamic_batch: bool
