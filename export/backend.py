"""What every export format must be able to do; the steps around it (parity, ladder, bundle) are the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from pydantic import Field

from compressor.core.artifact import Format, IOSpec, ModelStatistics, Precision, Signature
from compressor.core.device import DeviceProfile
from compressor.core.errors import MissingExtraError
from compressor.core.schema import Record
from compressor.core.task import LOGITS, Task, is_per_token, outputs_of
from compressor.quantize.plan import QuantizationPlan
from compressor.text import Batch
from export.calibration import Calibration

if TYPE_CHECKING:
    from torch import nn


class ConversionSpec(Record):
    """The shape of what is converted."""

    lengths: tuple[int, ...]
    """Ascending length buckets; formats with dynamic lengths use the largest as their limit. Never empty."""
    max_tokens: int = Field(gt=0)
    takes_token_types: bool
    pad_id: int
    num_labels: int
    """Width of the logits, or of the embedding."""
    model_type: str
    task: Task = "text-classification"
    profiles: tuple[tuple[int, int, int], ...] = ()
    """TensorRT's optimisation profiles as (min, opt, max) tokens; empty: one a length bucket, tuned for its end."""
    tensorrt: str | None = None
    """Versions of TensorRT on the device, e.g. ``8.6 - 10.3``; None: not known."""
    device: DeviceProfile | None = None
    """For formats that are compiled for one device; None where none was named."""

    def output_shapes(self, batch: int | str, tokens: int | str) -> dict[str, tuple[int | str, ...]]:
        """Returns canonical output name to shape, in the order of the model file's outputs."""
        width: tuple[int, ...] = () if self.task == "question-answering" else (self.num_labels,)
        each = (tokens, *width) if is_per_token(self.task) else width
        return dict.fromkeys(outputs_of(self.task), (batch, *each))


class Predictor(Protocol):
    """Runs one converted file. Feeds by name, never by position."""

    runtime: str
    """Name and version of the runtime."""

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        """Runs padded token ids.

        Args:
            batch: canonical input names to int64 arrays of shape (batch, tokens), where ``tokens`` is one of the file's
                lengths (any length where they are dynamic).

        Returns:
            Canonical output name to a float32 array of shape (batch, …): ``logits``; ``start_logits`` and
            ``end_logits``; ``embedding``.

        Raises:
            UsageError: ids that are no whole numbers, or none at all.
        """
        ...

    def logits(self, batch: Batch) -> np.ndarray:
        """Returns the logits alone, of shape (batch, labels) or (batch, tokens, labels)."""
        return self.run(batch)[LOGITS]


@runtime_checkable
class Backend(Protocol):
    """One format. Stateless; every method reads or writes files it is given."""

    format: Format
    model_file: str
    """Name of the file a runtime loads, e.g. ``model.onnx``."""
    model_pattern: str
    """Matches the names of all files that make up the model; their sum is the artifact's size."""
    dynamic_lengths: bool
    """True where one graph takes any length (ONNX); ``io.json`` then lists no buckets."""
    simulated: bool
    """True where :meth:`open` runs a simulator of the device: its answers, thousands of times slower."""

    def offers(self, precision: Precision) -> bool:
        """Returns whether the format can be made in this precision."""
        ...

    def require(self) -> None:
        """Raises MissingExtraError when the packages of this format are not installed."""
        ...

    def convert(self, model: nn.Module, spec: ConversionSpec, output: Path) -> None:
        """Writes the FP32 model file(s) of ``model`` (eager attention, evaluation mode, CPU) into ``output``."""
        ...

    def reduce(
        self,
        source: Path,
        output: Path,
        precision: Precision,
        plan: QuantizationPlan,
        calibration: Calibration | None = None,
    ) -> None:
        """Writes a lower-precision copy of the FP32 folder ``source`` into ``output`` (``fp32``: a plain copy).

        ``calibration`` is needed where activations get fixed ranges (``plan.method`` is ``static``).
        """
        ...

    def finish(self, folder: Path, spec: ConversionSpec, precision: Precision) -> Mapping[str, object]:
        """Adds the format's own companions (build scripts, plans) to ``folder``; returns facts for the manifest."""
        ...

    def signatures(self, folder: Path) -> tuple[Signature, ...]:
        """Returns the entry points as read back from the file in ``folder``."""
        ...

    def inspect(self, model: Path) -> ModelStatistics:
        """Returns what is found in a model file of this format, whoever made it."""
        ...

    def open(self, folder: Path, io: IOSpec, *, threads: int) -> Predictor:
        """Loads the file in ``folder`` in its usual runtime on this machine."""
        ...


def backend_for(format_name: Format) -> Backend:
    """Returns the backend of a format, imported on first use."""
    if format_name == "onnx":
        from export.onnx.backend import OnnxBackend

        return OnnxBackend()
    if format_name == "onnx-qnn":
        from export.qnn.backend import QnnBackend

        return QnnBackend()
    if format_name == "tflite":
        from export.tflite.backend import TFLiteBackend

        return TFLiteBackend()
    from export.tensorrt.backend import TensorRTBackend

    return TensorRTBackend()


def require_package(module: str, package: str, extra: str) -> None:
    """Raises MissingExtraError when ``module`` cannot be found."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise MissingExtraError(package, extra)
