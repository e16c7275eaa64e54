"""The teacher's answers on the training data, computed once and kept, so that a second epoch costs no teacher time."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compressor.core.folders import disk_errors
from compressor.core.hashing import sha256_json
from compressor.data.batches import EncodedSplit, sorted_batches
from compressor.distill.capture import run_model
from compressor.distill.outputs import Needs, Outputs, Projections
from compressor.families import adapter_for
from compressor.processes import processes
from compressor.stage import Progress, silent

logger = logging.getLogger(__name__)

_BATCH_SIZE = 32
_KEY = 16
"""Hexadecimal digits of a file's key."""


class TeacherOutputs:
    """Logits, always kept; hidden states in float16 where they fit ``cache_mb``, else computed again for each batch.

    Float16 is enough for a target: rounding a state by 0.05 % is far less than the student's distance to it. A teacher
    with states beyond float16's range (65504) is run again for each batch too. Whether cached or not, the teacher
    computes in float32, so that the choice between disk and time changes no target.

    Queries, keys and values take no space of their own: they are three small products away from the state that their
    layer reads. In a family whose layers put more between (MobileBERT, DeBERTa), the teacher is run for each batch.

    The files are named by the content they were made of (weights, token ids, places, states), so that every run in the
    same folder that asks for the same finds them.

    Args:
        model: the teacher, in evaluation mode.
        data: the training split as the teacher reads it.
        needed: positions in it that training will visit; all of them unless it is shorter than an epoch.
        states: numbers of the hidden states that the losses compare.
        layers: zero-based layers whose queries, keys and values the losses compare.
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
        needed: Sequence[int] | np.ndarray,
        states: Sequence[int],
        layers: Sequence[int] = (),
        width: int,
        scratch: Path,
        cache_mb: float,
        progress: Progress = silent,
    ) -> None:
        self._model = model
        self._device = next(model.parameters()).device
        self._data = data
        self._needs = Needs(tuple(sorted(states)), tuple(sorted(layers)))
        self._states = tuple(sorted({*states, *layers}))  # layer i reads state i
        self._width = width
        self._offsets = np.concatenate([[0], np.cumsum(data.lengths)])
        self._needed = np.sort(np.asarray(needed, dtype=np.int64))
        key = _digest(model, data, self._needed)
        self._logits_file = scratch / f"teacher-logits-{key}.npy"
        self._hidden_file = scratch / f"teacher-hidden-{key}-{sha256_json(self._states)[:_KEY]}.npy"
        self.hidden_mb = int(self._offsets[-1]) * len(self._states) * width * 2 / 1e6
        self.caches_hidden = bool(self._states) and self._fits(cache_mb)
        """Whether hidden states come from the cache; False where they are computed again for each batch."""
        # One process asks the teacher; the others find the files when it has shared what it decided.
        if processes().is_main and not self._complete():
            self._fill(progress)
        self.caches_hidden = processes().share(self.caches_hidden)
        self._logits: np.ndarray = np.load(self._logits_file, mmap_mode="r")
        self._hidden: np.ndarray | None = np.load(self._hidden_file, mmap_mode="r") if self.caches_hidden else None

    def batch(self, indices: Sequence[int], needs: Needs | None = None) -> Outputs:
        """Returns the teacher's outputs for the chosen training sentences, padded to the longest, on its device.

        Args:
            indices: positions in the training split.
            needs: the part of what was asked for that this batch wants; default all of it.
        """
        needs = self._needs if needs is None else needs
        logits = torch.from_numpy(self._logits[list(indices)]).to(self._device)
        if not (needs.states or needs.layers):
            return Outputs(logits)
        # The student's autocast must not reach the teacher: a target in bfloat16 is noise to learn.
        with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
            if self._hidden is None:
                found = run_model(self._model, self._data.inputs(indices, self._device), needs.states, needs.layers)
                return Outputs(logits, found.hidden_states, found.projections)
            wanted = sorted({*needs.states, *needs.layers})
            hidden = dict(zip(wanted, self._read(self._hidden, indices, wanted), strict=True))
            return Outputs(
                logits,
                {state: hidden[state] for state in needs.states},
                {layer: self._project(layer, hidden[layer]) for layer in needs.layers},
            )

    def discard(self) -> None:
        """Deletes the cached states; call it when training is over."""
        self._hidden = None
        self._hidden_file.unlink(missing_ok=True)

    def _fits(self, cache_mb: float) -> bool:
        if self._needs.layers and not adapter_for(self._model.config).projects_layer_input:
            logger.info("queries, keys and values of this family do not follow from a cached state: recomputed")
            return False
        if self.hidden_mb > cache_mb:
            logger.info("hidden states need %.0f MB, more than cache_mb %.0f: recomputed", self.hidden_mb, cache_mb)
            return False
        return True

    def _read(self, cached: np.ndarray, indices: Sequence[int], states: Sequence[int]) -> torch.Tensor:
        """Returns cached states of shape (states, batch, tokens, width), 0 in padding."""
        tokens = max(self._data.lengths[index] for index in indices)
        columns = [self._states.index(state) for state in states]
        padded = np.zeros((len(columns), len(indices), tokens, self._width), dtype=np.float32)
        for row, index in enumerate(indices):
            start, end = self._offsets[index], self._offsets[index + 1]
            padded[:, row, : end - start] = cached[start:end, columns].swapaxes(0, 1)
        return torch.from_numpy(padded).to(self._device)

    def _project(self, layer: int, state: torch.Tensor) -> Projections:
        """Returns what a layer makes of the state that it reads."""
        adapter = adapter_for(self._model.config)
        query, key, value = adapter.query_key_value(adapter.applied_layers(self._model)[layer])
        return Projections(query(state), key(state), value(state))

    def _complete(self) -> bool:
        return self._logits_file.is_file() and (not self.caches_hidden or self._hidden_file.is_file())

    def _fill(self, progress: Progress) -> None:
        config: Any = self._model.config
        logits = np.full((len(self._data), int(config.num_labels)), np.nan, dtype=np.float32)
        lengths = self._data.lengths
        batches = [
            [self._needed[place] for place in places]
            for places in sorted_batches([lengths[index] for index in self._needed], _BATCH_SIZE)
        ]
        unfinished = self._hidden_file.with_suffix(".part")
        with disk_errors(self._hidden_file), torch.no_grad():
            hidden = self._open(unfinished) if self.caches_hidden else None
            for done, indices in enumerate(batches, start=1):
                found = run_model(
                    self._model, self._data.inputs(indices, self._device), self._states if hidden is not None else ()
                )
                logits[indices] = found.logits.float().cpu().numpy()
                if hidden is not None and not self._store(hidden, indices, found):
                    logger.info("hidden states exceed the range of float16: recomputed for each batch")
                    hidden, self.caches_hidden = None, False
                    unfinished.unlink()
                progress(done, len(batches), "teacher outputs")
            if hidden is not None:
                hidden.flush()
                unfinished.replace(self._hidden_file)
            temporary = self._logits_file.with_suffix(".part")
            with temporary.open("wb") as stream:
                np.save(stream, logits)
            temporary.replace(self._logits_file)

    def _store(self, hidden: np.memmap[Any, Any], indices: Sequence[int], found: Outputs) -> bool:
        """Writes the states of one batch; returns False, for the caller to give up, where one is not finite there."""
        for row, index in enumerate(indices):
            start, end = self._offsets[index], self._offsets[index + 1]
            for column, state in enumerate(self._states):
                with np.errstate(over="ignore"):
                    half = found.hidden_states[state][row, : end - start].cpu().numpy().astype(np.float16)
                if not np.isfinite(half).all():
                    return False
                hidden[start:end, column] = half
        return True

    def _open(self, file: Path) -> np.memmap[Any, Any]:
        shape = (int(self._offsets[-1]), len(self._states), self._width)
        states: np.memmap[Any, Any] = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=shape)
        return states


def _digest(model: nn.Module, data: EncodedSplit, needed: np.ndarray) -> str:
    """Returns a short hash of all that the teacher's answers follow from."""
    config: Any = model.config
    found = hashlib.sha256(sha256_json(config.to_dict()).encode())
    for name, tensor in model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().reshape(-1).numpy())
    for item in data.encoded:
        found.update(np.asarray((len(item), *item.ids, *item.type_ids), dtype=np.int64).tobytes())
    found.update(np.asarray(needed, dtype=np.int64).tobytes())
    return found.hexdigest()[:_KEY]
