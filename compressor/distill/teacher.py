"""The teacher's answers on the training data, computed once and kept, so that a second epoch costs no teacher time."""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from compressor.core.cache import cache_folder, keeps_results, make_room
from compressor.core.checkpoint import Checkpoint
from compressor.core.environment import versions
from compressor.core.folders import disk_errors
from compressor.core.hashing import combine, sha256_json
from compressor.data.batches import EncodedSplit, sorted_batches
from compressor.data.rows import NpyRows
from compressor.distill.capture import run_model
from compressor.distill.outputs import Needs, Outputs, Projections
from compressor.families import adapter_for
from compressor.processes import processes
from compressor.stage import Progress, silent

logger = logging.getLogger(__name__)

_BATCH_SIZE = 32
_KEY = 16
"""Hexadecimal digits of a file's key."""
MAX_BYTES = 8_000_000_000
"""Of all teachers' outputs in the user's cache; what was not used for longest goes first."""


class TeacherOutputs:
    """Logits, always kept; hidden states in float16 where they fit ``cache_mb``, else computed again for each batch.

    Float16 is enough for a target: rounding a state by 0.05 % is far less than the student's distance to it. A teacher
    with states beyond float16's range (65504) is run again for each batch too. Whether cached or not, the teacher
    computes in float32, so that the choice between disk and time changes no target.

    Queries, keys and values take no space of their own: they are three small products away from the state that their
    layer reads. In a family whose layers put more between (MobileBERT, DeBERTa), the teacher is run for each batch.

    There is one file for the logits and one for each state, named by the content they were made of (weights, token ids,
    places), so that whoever asks for the same in the same folder finds them: another student, another map of layers.

    Args:
        model: the teacher, in evaluation mode.
        data: the split as the teacher reads it.
        needed: positions in it that training will visit; all of them unless it is shorter than an epoch.
        states: numbers of the hidden states that the losses compare.
        layers: zero-based layers whose queries, keys and values the losses compare.
        width: width of the hidden states.
        folder: where the files are.
        cache_mb: most megabytes of hidden states to keep on disk.
        digest: a hash of the model, where it is known; else one is made of its weights.
        progress: told while the cache is filled.
    """

    def __init__(
        self,
        model: nn.Module,
        data: EncodedSplit,
        *,
        needed: Sequence[int] | np.ndarray,
        states: Sequence[int] = (),
        layers: Sequence[int] = (),
        width: int = 0,
        folder: Path,
        cache_mb: float = 0.0,
        digest: str | None = None,
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
        key = _key(digest or _weights_digest(model), data, self._needed)
        self._logits_file = folder / f"{key}-logits.npy"
        self._state_files = {state: folder / f"{key}-state-{state}.npy" for state in self._states}
        self.hidden_mb = int(self._offsets[-1]) * len(self._states) * width * 2 / 1e6
        self.caches_hidden = bool(self._states) and self._fits(cache_mb)
        """Whether hidden states come from the cache; False where they are computed again for each batch."""
        # One process asks the teacher; the others find the files when it has shared what it decided.
        if processes().is_main:
            missing = [state for state in self._states if self.caches_hidden and not _used(self._state_files[state])]
            if missing or not _used(self._logits_file):
                self._fill(missing, progress)
        self.caches_hidden = processes().share(self.caches_hidden)
        self._logits = NpyRows(self._logits_file)
        self._hidden = {state: NpyRows(file) for state, file in self._state_files.items()} if self.caches_hidden else {}

    @property
    def logits(self) -> np.ndarray:
        """Shape (sentences, labels), float32; 0 where none was needed."""
        return self._logits.read(0, len(self._data))

    def batch(self, indices: Sequence[int], needs: Needs | None = None) -> Outputs:
        """Returns the teacher's outputs for the chosen training sentences, padded to the longest, on its device.

        Args:
            indices: positions in the training split.
            needs: the part of what was asked for that this batch wants; default all of it.
        """
        needs = self._needs if needs is None else needs
        rows = np.concatenate([self._logits.read(index, index + 1) for index in indices])
        logits = torch.from_numpy(rows).to(self._device)
        if not (needs.states or needs.layers):
            return Outputs(logits)
        # The student's autocast must not reach the teacher: a target in bfloat16 is noise to learn.
        with torch.no_grad(), torch.autocast(self._device.type, enabled=False):
            if not self._hidden:
                found = run_model(self._model, self._data.inputs(indices, self._device), needs.states, needs.layers)
                return Outputs(logits, found.hidden_states, found.projections)
            hidden = {state: self._read(state, indices) for state in sorted({*needs.states, *needs.layers})}
            return Outputs(
                logits,
                {state: hidden[state] for state in needs.states},
                {layer: self._project(layer, hidden[layer]) for layer in needs.layers},
            )

    def _fits(self, cache_mb: float) -> bool:
        if self._needs.layers and not adapter_for(self._model.config).projects_layer_input:
            logger.info("queries, keys and values of this family do not follow from a cached state: recomputed")
            return False
        if self.hidden_mb > cache_mb:
            logger.info("hidden states need %.0f MB, more than cache_mb %.0f: recomputed", self.hidden_mb, cache_mb)
            return False
        return True

    def _read(self, state: int, indices: Sequence[int]) -> torch.Tensor:
        """Returns a cached state of shape (batch, tokens, width), 0 in padding."""
        tokens = max(self._data.lengths[index] for index in indices)
        padded = np.zeros((len(indices), tokens, self._width), dtype=np.float32)
        for row, index in enumerate(indices):
            start, end = self._offsets[index], self._offsets[index + 1]
            padded[row, : end - start] = self._hidden[state].read(start, end)
        return torch.from_numpy(padded).to(self._device)

    def _project(self, layer: int, state: torch.Tensor) -> Projections:
        """Returns what a layer makes of the state that it reads."""
        adapter = adapter_for(self._model.config)
        query, key, value = adapter.query_key_value(adapter.applied_layers(self._model)[layer])
        return Projections(query(state), key(state), value(state))

    def _fill(self, states: Sequence[int], progress: Progress) -> None:
        """Runs the teacher once and writes its logits and the named states; gives the states up where one overflows."""
        config: Any = self._model.config
        lengths = self._data.lengths
        batches = [
            [self._needed[place] for place in places]
            for places in sorted_batches([lengths[index] for index in self._needed], _BATCH_SIZE)
        ]
        # Others may fill the same files at the same time: each its own, and the last one stays.
        files = {state: _unfinished(self._state_files[state]) for state in states}
        answers = _unfinished(self._logits_file)
        with disk_errors(self._logits_file), torch.no_grad():
            tokens = int(self._offsets[-1])
            logits = NpyRows.create(answers, len(self._data), int(config.num_labels), np.float32)
            hidden = {state: NpyRows.create(file, tokens, self._width, np.float16) for state, file in files.items()}
            try:
                for done, indices in enumerate(batches, start=1):
                    inputs = self._data.inputs(indices, self._device)
                    found = run_model(self._model, inputs, sorted(hidden))
                    for index, row in zip(indices, found.logits.float().cpu().numpy(), strict=True):
                        logits.write(index, row)
                    if not all(self._store(hidden[state], indices, found.hidden_states[state]) for state in hidden):
                        logger.info("hidden states exceed the range of float16: recomputed for each batch")
                        hidden, self.caches_hidden = {}, False
                    progress(done, len(batches), "teacher outputs")
                for state in hidden:
                    files[state].replace(self._state_files[state])
                answers.replace(self._logits_file)
            finally:
                for rows in (logits, *hidden.values()):
                    rows.close()
                for file in (answers, *files.values()):
                    file.unlink(missing_ok=True)

    def _store(self, kept: NpyRows, indices: Sequence[int], state: torch.Tensor) -> bool:
        """Writes one state of a batch; returns False where it is not finite in float16."""
        with np.errstate(over="ignore"):
            half = state.cpu().numpy().astype(np.float16)
        for row, index in enumerate(indices):
            start, end = self._offsets[index], self._offsets[index + 1]
            written = half[row, : end - start]
            kept.write(start, written)
            if not np.isfinite(written).all():
                return False
        return True


def teacher_folder(scratch: Path) -> Path:
    """Returns the folder of teachers' outputs: the user's cache, where the next student finds them again.

    It is ``scratch``, which goes when the stage is done, where nothing is to be kept between calls, where the cache
    cannot be written, and in a run of several processes, which may not share a home.
    """
    folder = cache_folder("teacher-outputs")
    if not keeps_results() or processes().count > 1:
        return scratch
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        logger.info("the teacher's outputs are not kept: %s", error)
        return scratch
    make_room(folder, MAX_BYTES)
    return folder


def teacher_digest(checkpoint: Checkpoint) -> str:
    """Returns what names a checkpoint's answers: its content, and the libraries that compute with it."""
    return combine({"checkpoint": checkpoint.hash, **versions()})


def _used(file: Path) -> bool:
    """Returns whether a file is there, and if so says that it is of use, so that others go first."""
    if not file.is_file():
        return False
    os.utime(file)
    return True


def _unfinished(file: Path) -> Path:
    return file.with_name(f".{file.stem}.{uuid.uuid4().hex[:8]}.part")


def _weights_digest(model: nn.Module) -> str:
    """Returns a hash of a model's config and weights."""
    config: Any = model.config
    found = hashlib.sha256(sha256_json(config.to_dict()).encode())
    for name, tensor in model.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().reshape(-1).numpy())
    return found.hexdigest()


def _key(model: str, data: EncodedSplit, needed: np.ndarray) -> str:
    """Returns a short hash of all that a teacher's answers follow from."""
    found = hashlib.sha256(model.encode())
    for item in data.encoded:
        found.update(np.asarray((len(item), *item.ids, *item.type_ids), dtype=np.int64).tobytes())
    found.update(np.asarray(needed, dtype=np.int64).tobytes())
    return found.hexdigest()[:_KEY]
