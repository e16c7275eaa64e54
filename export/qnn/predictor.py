"""A compiled graph in the vendor's simulator: the NPU's own arithmetic, on this machine; never the NPU's time."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx

from compressor.core.errors import StageError
from compressor.core.hashing import sha256_file
from compressor.core.task import output_roles
from compressor.text import INPUT_IDS, Batch
from export.backend import Predictor
from export.onnx import files
from export.qnn.answers import Answers
from export.qnn.compile import CONTEXT, check_made_for, compile_in, wrapper_name
from export.qnn.npu import library_versions, provider_options
from export.qnn.process import HexagonProcess
from export.qnn.widths import mixes_widths


class SimulatedPredictor(Predictor):
    """One simulator process. It starts with the first sentence that no earlier process answered; ends with the object.

    The simulator loads a context of one graph from its file. A context in which several lengths share their weights it
    cannot load (its loader ends the process); such a file is compiled once more from the plain graph beside it, and
    only run when that gives the very same bytes. Not so where sums of 16 bits stand among operators of 8: the compiler
    may lay those out differently each time, with the same answers, so any compilation of that graph stands for it.

    Args:
        folder: holds ``model.bin``, the ``model_<length>.onnx`` and the plain graph.
        lengths: the lengths that were compiled.
        plain: name of the plain graph in ``folder``.

    Raises:
        ArtifactError: the files are for another version of the QNN libraries than is installed.
    """

    def __init__(self, folder: Path, lengths: tuple[int, ...], plain: str) -> None:
        self._folder, self._lengths, self._plain = folder, lengths, plain
        self._npu = check_made_for(folder / wrapper_name(lengths[0]))
        self._inputs, outputs = _ends(folder / wrapper_name(lengths[0]))
        roles = {name: canonical for canonical, name in output_roles(outputs).items()}
        self._outputs = tuple(roles.get(name, name) for name in outputs)
        self._answers = Answers(sha256_file(folder / CONTEXT))
        self._process: HexagonProcess | None = None
        found = library_versions()
        self.runtime = f"simulated: Hexagon v{self._npu.hexagon.arch} in QNN {found['qnn']} on this machine's CPU"

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        """Returns float32 outputs by canonical name, e.g. logits (batch, labels) or (batch, tokens, labels).

        Arrays of shape (batch, tokens) are run row by row.
        """
        rows = [self._row(batch, row) for row in range(len(batch[INPUT_IDS]))]
        return {name: np.concatenate(found) for name, found in zip(self._outputs, zip(*rows, strict=True), strict=True)}

    def _row(self, batch: Batch, row: int) -> list[np.ndarray]:
        feed = {name: np.ascontiguousarray(batch[name][row : row + 1], dtype=np.int32) for name in self._inputs}
        found = self._answers.take(feed)
        if found is None:
            outputs = self._started().ask("run", length=feed[INPUT_IDS].shape[1], feed=feed)["outputs"]
            found = [np.asarray(output, dtype=np.float32) for output in outputs]
            self._answers.keep(feed, found)
        return found

    def close(self) -> None:
        """Ends the simulator's process."""
        if self._process is not None:
            self._process.close()
            self._process = None

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()

    def _started(self) -> HexagonProcess:
        if self._process is None:
            process = HexagonProcess()
            try:
                self._fill(process)
            except BaseException:
                process.close()
                raise
            self._process = process
        return self._process

    def _fill(self, process: HexagonProcess) -> None:
        if len(self._lengths) == 1:
            wrapper = self._folder / wrapper_name(self._lengths[0])
            process.ask(
                "load", model=str(wrapper.resolve()), length=self._lengths[0], options=provider_options(self._npu)
            )
            return
        with tempfile.TemporaryDirectory(prefix="compressor-qnn-") as name:
            compile_in(process, self._folder / self._plain, Path(name), self._lengths, self._npu)
            same = sha256_file(Path(name) / CONTEXT) == sha256_file(self._folder / CONTEXT)
            if not same and not mixes_widths(files.load(self._folder / self._plain)):
                raise StageError(
                    f"compiling {self._plain} again does not give the bytes of {CONTEXT}, so its simulation would "
                    "prove nothing of that file",
                    remedy="convert again with the versions installed here",
                )


def _ends(wrapper: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of a file's inputs and outputs."""
    graph = onnx.load(str(wrapper), load_external_data=False).graph
    return tuple(item.name for item in graph.input), tuple(item.name for item in graph.output)
