"""What makes a run repeatable and polite: its own random stream and its own number of threads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Runs the block with ``threads`` intra-operator threads and restores the number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def reproducible(*, seed: int, threads: int) -> Iterator[None]:
    """Runs the block with fixed seeds (torch, NumPy, Python) and thread count.

    All three global random streams are the caller's again afterwards: resuming a training checkpoint sets them too.
    """
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(), torch_threads(threads):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def computes_bf16(device: torch.device) -> bool:
    """Returns whether a device has instructions for bfloat16; emulating it would be slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return device.type in ("mps", "xpu", "hpu", "npu")
