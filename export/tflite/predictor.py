"""Runs a TFLite file in LiteRT on this machine."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from compressor.core.artifact import IOSpec, Signature
from compressor.core.errors import ArtifactError
from compressor.text import CANONICAL_INPUTS, Batch
from export.tflite.quiet import quiet_native


class TFLitePredictor:
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

    def logits(self, batch: Batch) -> np.ndarray:
        """Runs padded token ids, one row at a time.

        Args:
            batch: canonical input names to arrays of shape (batch, tokens), where ``tokens`` is one of the file's
                lengths. Inputs the file does not take are left out; token types it takes and does not get are 0.

        Returns:
            float32 logits of shape (batch, labels).

        Raises:
            ArtifactError: the file has no entry point of this width, or an input is missing.
        """
        rows, width = next(iter(batch.values())).shape
        signature = self._signature(width)
        feeds = self._feeds(signature, batch, (rows, width))
        runner = self._runner(width, signature)
        output = signature.outputs[0].name
        results = [
            np.asarray(runner(**{name: values[row : row + 1] for name, values in feeds.items()})[output])
            for row in range(rows)
        ]
        return np.concatenate(results).astype(np.float32, copy=False)

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
    def _feeds(signature: Signature, batch: Batch, shape: tuple[int, int]) -> dict[str, np.ndarray]:
        names = {own: canonical for canonical, own in signature.roles.items()}
        feeds = {}
        for spec in signature.inputs:
            canonical = names.get(spec.name, spec.name)
            if canonical in batch:
                feeds[spec.name] = batch[canonical].astype(spec.dtype)
            elif canonical == CANONICAL_INPUTS[2]:
                feeds[spec.name] = np.zeros(shape, dtype=spec.dtype)
            else:
                raise ArtifactError(
                    f"the file takes '{spec.name}', which is none of {', '.join(CANONICAL_INPUTS)}",
                    remedy="convert the checkpoint with this project",
                )
        return feeds
