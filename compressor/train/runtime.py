"""What makes a run repeatable and polite: its own random stream and its own number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
    """Runs the block with a fixed torch seed and thread count; the caller's random stream is left as it was."""
    with torch.random.fork_rng(), torch_threads(threads):
        torch.manual_seed(seed)
        yield
