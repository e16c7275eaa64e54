"""The processes of one run: how many a launcher started, which one this is, and how they keep step.

``torchrun`` and ``accelerate launch`` start the same command several times and tell each copy its place in the
environment variables ``RANK`` and ``WORLD_SIZE``. Without them there is one process and nothing here does anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from compressor.core.errors import StageError

_T = TypeVar("_T")
_PATIENCE = timedelta(days=7)
"""How long a process waits for the others: as long as a stage that only the main one does may take."""


@dataclass(frozen=True, kw_only=True)
class Processes:
    """One run's processes as this one sees them."""

    index: int = 0
    count: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes results and talks to the user."""
        return self.index == 0

    def share(self, value: _T) -> _T:
        """Returns the main process's value in every process; the others wait for it.

        Args:
            value: anything that can be pickled; it is looked at in the main process only.

        Raises:
            StageError: in the main process, where another one has ended.
            SystemExit: in any other, where the main one has ended; it has said why.
        """
        if self.count == 1:
            return value
        from accelerate.utils import broadcast_object_list

        _state()
        try:
            found: list[_T] = broadcast_object_list([value])
        except RuntimeError as error:
            if not self.is_main:
                raise SystemExit(1) from error
            raise StageError(
                f"one of the {self.count} processes of this run has ended",
                remedy="see what it said; run the same again",
            ) from error
        return found[0]

    def leave(self) -> None:
        """Parts the processes, all at once; what the main one does from here on it does alone."""
        if self.count == 1:
            return
        from accelerate.state import AcceleratorState

        self.share(None)
        _state().destroy_process_group()
        AcceleratorState._reset_state(reset_partial_state=True)

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Lets the main process through the block before the others."""
        if not self.is_main:
            self.share(None)
        yield
        if self.is_main:
            self.share(None)


def processes() -> Processes:
    """Returns what the launcher said; one process where there was none."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    return Processes(index=int(os.environ.get("RANK", "0")), count=count) if count > 1 else Processes()


def on_cpu() -> bool:
    """Returns whether training stays on the CPU: there is nothing else, or ``ACCELERATE_USE_CPU`` says so.

    On the CPU a run repeats to the bit. A GPU's kernels add in another order from run to run; there it repeats to
    rounding.
    """
    import torch
    from accelerate.utils import parse_flag_from_env

    return bool(parse_flag_from_env("ACCELERATE_USE_CPU")) or not torch.accelerator.is_available()


def training_device() -> Any:
    """Returns the torch device on which this process trains."""
    return _state().device


def _state() -> Any:
    """Returns accelerate's state; the first call connects the processes."""
    from accelerate.state import PartialState

    if PartialState._shared_state:
        return PartialState()
    return PartialState(on_cpu(), **({"timeout": _PATIENCE} if processes().count > 1 else {}))
