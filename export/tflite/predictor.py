"""Runs a TFLite file in LiteRT on this machine."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from compressor.core.artifact import IOSpec, Signature
from compressor.core.errors import ArtifactError
from compressor.core.task import output_roles
from compressor.text import Batch
from export.backend import Predictor
from export.feeding import feed
from export.tflite.quiet import quiet_native


class TFLitePredictor(Predictor):
    """One interpreter; the entry point is chosen by the batch's width and fed by name.

    Args:
        model: the ``.tflite`` file.
        io: its entry points.
        threads: how many threads the interpreter's kernels may use.

    Raises:
        ArtifactError: the runtime refuses the file.
    """

    def __init__(self, model: Path, io: IOSpec, *, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.runtime = f"ai-edge-litert {version('ai-edge-litert')}"
        try:
            with quiet_native():
                self._interpreter = Interpreter(model_path=str(model), num_threads=threads)
                self._interpreter.get_signature_list()
                self._interpreter.allocate_tensors()  # creates the delegate, which says so on stderr, here and now
        except (ValueError, RuntimeError) as error:
            raise ArtifactError(f"{self.runtime} refuses {model}: {error}", remedy="convert it again") from error
        self._signatures = {signature.length: signature for signature in io.signatures}
        self._runners: dict[int, Any] = {}

    def run(self, batch: Batch) -> dict[str, np.ndarray]:
        """Runs padded token ids, one row at a time.

        Args:
            batch: canonical input names to arrays of shape (batch, tokens), where ``tokens`` is one of the file's
                lengths. Inputs the file does not take are left out; token types it takes and does not get are 0.

        Returns:
            float32 outputs by canonical name.

        Raises:
            ArtifactError: the file has no entry point of this width, or no output that is an answer.
            UsageError: an input is missing, or holds no whole numbers.
        """
        rows, width = next(iter(batch.values())).shape
        signature = self._signature(width)
        feeds = self._feeds(signature, batch)
        runner = self._runner(width, signature)
        results = [runner(**{name: values[row : row + 1] for name, values in feeds.items()}) for row in range(rows)]
        return {
            canonical: np.concatenate([result[name] for result in results]).astype(np.float32, copy=False)
            for canonical, name in self._output_roles(signature).items()
        }

    def _signature(self, width: int) -> Signature:
        if width not in self._signatures:
            lengths = ", ".join(str(length) for length in self._signatures)
            raise ArtifactError(
                f"the file has no entry point for {width} tokens; it has {lengths}",
                remedy="pad to one of these lengths, or convert again with --lengths",
            )
        return self._signatures[width]

    def _runner(self, width: int, signature: Signature) -> Any:
        if width not in self._runners:
            with quiet_native():
                self._runners[width] = self._interpreter.get_signature_runner(signature.key)
        return self._runners[width]

    @staticmethod
    def _output_roles(signature: Signature) -> dict[str, str]:
        names = [spec.name for spec in signature.outputs]
        roles = signature.output_roles or output_roles(names)
        if not roles:
            raise ArtifactError(
                f"the file gives {', '.join(names)}; expected logits, start and end logits, or an embedding",
                remedy="convert the checkpoint with its head, with this project",
            )
        return roles

    @staticmethod
    def _feeds(signature: Signature, batch: Batch) -> dict[str, np.ndarray]:
        canonical_of = {name: canonical for canonical, name in signature.roles.items()}
        feeds = feed(batch, {canonical_of.get(spec.name, spec.name): spec.dtype for spec in signature.inputs})
        return {signature.roles.get(canonical, canonical): array for canonical, array in feeds.items()}
