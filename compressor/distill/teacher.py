"""The teacher's answers on the training data, computed once and kept, so that a second epoch costs no teacher time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compressor.core.folders import disk_errors
from compressor.data.batches import EncodedSplit, sorted_batches
from compressor.distill.outputs import Outputs
from compressor.stage import Progress, silent

logger = logging.getLogger(__name__)

_LOGITS = "teacher-logits.npy"
_HIDDEN = "teacher-hidden.npy"
_BATCH_SIZE = 32


def run_model(model: nn.Module, inputs: dict[str, torch.Tensor], states: Sequence[int]) -> Outputs:
    """Runs a classifier and keeps its logits and the named hidden states (0 is the embeddings' output)."""
    found = model(**inputs, output_hidden_states=bool(states))
    return Outputs(found.logits, {state: found.hidden_states[state] for state in states})


class TeacherOutputs:
    """Logits, always kept; hidden states in float16 where they fit ``cache_mb``, else computed again for each batch.

    Float16 is enough for a target: rounding a state by 0.05 % is far less than the student's distance to it. A teacher
    with states beyond float16's range (65504) is run again for each batch too. Whether cached or not, the teacher
    computes in float32, so that the choice between disk and time changes no target.

    Args:
        model: the teacher, in evaluation mode.
        data: the training split as the teacher reads it.
        needed: positions in it that training will visit; all of them unless it is shorter than an epoch.
        states: numbers of the hidden states that the losses compare.
        width: width of the hidden states.
        scratch: folder for the cached states (they are memory-mapped); reused by a resumed run.
        cache_mb: most megabytes of hidden states to keep on disk.
        progress: told while the cache is filled.
    """

    def __init__(
        self,
        model: nn.Module,
        data: EncodedSplit,
        *,
        needed: Sequence[int],
        states: Sequence[int],
        width: int,
        scratch: Path,
        cache_mb: float,
        progress: Progress = silent,
    ) -> None:
        self._model = model
        self._data = data
        self._states = tuple(sorted(states))
        self._width = width
        self._offsets = np.concatenate([[0], np.cumsum(data.lengths)])
        self._scratch = scratch
        self._needed = tuple(sorted(needed))
        self.hidden_mb = int(self._offsets[-1]) * len(self._states) * width * 2 / 1e6
        self.caches_hidden = bool(self._states) and self.hidden_mb <= cache_mb
        """Whether hidden states come from the cache; False where they are computed again for each batch."""
        if self._states and not self.caches_hidden:
            logger.info("hidden states need %.0f MB, more than cache_mb %.0f: recomputed", self.hidden_mb, cache_mb)
        if not self._complete():
            self._fill(progress)
        self._logits: np.ndarray = np.load(scratch / _LOGITS)
        self._hidden: np.ndarray | None = np.load(scratch / _HIDDEN, mmap_mode="r") if self.caches_hidden else None

    def batch(self, indices: Sequence[int]) -> Outputs:
        """Returns the teacher's outputs for the chosen training sentences, padded to the longest of them."""
        logits = torch.from_numpy(self._logits[list(indices)])
        if not self._states:
            return Outputs(logits)
        if self._hidden is None:
            # The student's autocast must not reach the teacher: a target in bfloat16 is noise to learn.
            with torch.no_grad(), torch.autocast("cpu", enabled=False):
                found = run_model(self._model, self._data.inputs(indices), self._states)
            return Outputs(logits, found.hidden_states)
        tokens = max(self._data.lengths[index] for index in indices)
        padded = np.zeros((len(self._states), len(indices), tokens, self._width), dtype=np.float32)
        for row, index in enumerate(indices):
            start, end = self._offsets[index], self._offsets[index + 1]
            padded[:, row, : end - start] = self._hidden[start:end].swapaxes(0, 1)
        return Outputs(logits, dict(zip(self._states, torch.from_numpy(padded), strict=True)))

    def discard(self) -> None:
        """Deletes the cached states; call it when training is over."""
        self._hidden = None
        (self._scratch / _HIDDEN).unlink(missing_ok=True)

    def _complete(self) -> bool:
        # The logits are written last, so their presence means that the states are whole too.
        return (self._scratch / _LOGITS).is_file() and (not self.caches_hidden or (self._scratch / _HIDDEN).is_file())

    def _fill(self, progress: Progress) -> None:
        config: Any = self._model.config
        classes = int(config.num_labels)
        logits = np.full((len(self._data), classes), np.nan, dtype=np.float32)
        lengths = self._data.lengths
        batches = [
            [self._needed[place] for place in places]
            for places in sorted_batches([lengths[index] for index in self._needed], _BATCH_SIZE)
        ]
        with disk_errors(self._scratch / _HIDDEN), torch.no_grad():
            hidden = self._open() if self.caches_hidden else None
            for done, indices in enumerate(batches, start=1):
                found = run_model(self._model, self._data.inputs(indices), self._states if hidden is not None else ())
                logits[indices] = found.logits.float().numpy()
                if hidden is not None and not self._store(hidden, indices, found):
                    logger.info("hidden states exceed the range of float16: recomputed for each batch")
                    hidden, self.caches_hidden = None, False
                    (self._scratch / _HIDDEN).unlink()
                progress(done, len(batches), "teacher outputs")
            if hidden is not None:
                hidden.flush()
            temporary = self._scratch / f".{_LOGITS}.tmp.npy"
            np.save(temporary, logits)
            temporary.replace(self._scratch / _LOGITS)

    def _store(self, hidden: np.memmap[Any, Any], indices: Sequence[int], found: Outputs) -> bool:
        """Writes the states of one batch; returns False, for the caller to give up, where one is not finite there."""
        for row, index in enumerate(indices):
            start, end = self._offsets[index], self._offsets[index + 1]
            for column, state in enumerate(self._states):
                with np.errstate(over="ignore"):
                    half = found.hidden_states[state][row, : end - start].numpy().astype(np.float16)
                if not np.isfinite(half).all():
                    return False
                hidden[start:end, column] = half
        return True

    def _open(self) -> np.memmap[Any, Any]:
        shape = (int(self._offsets[-1]), len(self._states), self._width)
        file = self._scratch / _HIDDEN
        states: np.memmap[Any, Any] = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=shape)
        return states
