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
