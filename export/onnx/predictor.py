"""ONNX Runtime on this machine's CPU, fed by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from compressor.core.errors import ArtifactError
from compressor.core.task import output_roles
from compressor.text import INPUT_IDS, Batch
from export.backend import Predictor
from export.feeding import feed

_ERRORS_ONLY = 3
_DTYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


class OnnxPredictor(Predictor):
    """A session whose feed comes from the graph's own input names.

    Token types that the graph asks for and the batch lacks are zeros; what the graph does not take is left out.

    Args:
        path: the ONNX file.
        threads: threads inside one operator; operators run one after another.
        fixed_batch: size of the graph's batch dimension; rows are run in groups of it. None: any size.

    Raises:
        ArtifactError: ONNX Runtime refuses the file.
    """

    def __init__(self, path: Path, *, threads: int, fixed_batch: int | None = None) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        try:
            session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's error classes have no common base
            raise ArtifactError(
                f"ONNX Runtime does not load {path}: {error}", remedy="copy the file again, or convert again"
            ) from error
        self._session: Any = session
        self._dtypes = {item.name: _DTYPES.get(item.type, np.int64) for item in session.get_inputs()}
        outputs = [item.name for item in session.get_outputs()]
        self._outputs = output_roles(outputs)
        if not self._outputs:
            raise ArtifactError(
                f"{path} gives {', '.join(outputs)}; expected logits, start and end logits, or an embedding",
                remedy="export the model with its head, or convert its checkpoint with this project",
            )
        self._fixed_batch = fixed_batch
        self.metadata: dict[str, str] = dict(session.get_modelmeta().custom_metadata_map)
        """What the file says about itself."""
        self.runtime = f"onnxruntime {ort.__version__}"

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        """Returns float32 outputs by canonical name for arrays of shape (batch, tokens)."""
        feeds = feed(batch, self._dtypes)
        rows = len(batch[INPUT_IDS])
        step = self._fixed_batch or max(rows, 1)
        names = list(self._outputs.values())
        parts = [
            self._session.run(names, {name: array[i : i + step] for name, array in feeds.items()})
            for i in range(0, rows, step)
        ]
        return {
            canonical: np.concatenate([part[place] for part in parts]).astype(np.float32, copy=False)
            for place, canonical in enumerate(self._outputs)
        }
