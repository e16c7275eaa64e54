"""The one feeder: padded token ids to what an entry point takes, by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from compressor.core.errors import UsageError
from compressor.text import ATTENTION_MASK, CANONICAL_INPUTS, INPUT_IDS, TOKEN_TYPE_IDS, Batch


def feed(batch: Batch, dtypes: Mapping[str, DTypeLike]) -> dict[str, np.ndarray]:
    """Returns the arrays that an entry point takes.

    Token types that it takes and the batch lacks are zeros; what it does not take is left out.

    Args:
        batch: canonical input names to integer arrays of shape (batch, tokens).
        dtypes: canonical name of each input of the entry point to its type.

    Raises:
        UsageError: no ids or mask, an array that holds no whole numbers or does not fit its type, or an entry point
            with an input that no text fills.
    """
    feeds = {}
    for name, dtype in dtypes.items():
        if name not in CANONICAL_INPUTS:
            raise UsageError(
                f"the file takes '{name}', which is none of {', '.join(CANONICAL_INPUTS)}",
                remedy="convert the checkpoint with this project",
            )
        array = batch.get(name)
        if array is None:
            if name != TOKEN_TYPE_IDS or INPUT_IDS not in batch:
                raise UsageError(
                    f"the batch holds no '{name}'", remedy=f"feed {INPUT_IDS} and {ATTENTION_MASK} at least"
                )
            array = np.zeros_like(batch[INPUT_IDS])
        feeds[name] = _cast(name, array, np.dtype(dtype))
    return feeds


def _cast(name: str, array: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    if array.dtype.kind not in "iub":
        raise UsageError(
            f"'{name}' holds {array.dtype}; expected whole numbers, which are cast to the {dtype} that the file takes",
            remedy="feed token ids as the tokenizer gives them",
        )
    cast = np.ascontiguousarray(array, dtype=dtype)
    if not np.array_equal(cast, array):
        raise UsageError(f"'{name}' holds numbers that do not fit {dtype}", remedy="feed the tokenizer's own ids")
    return cast
