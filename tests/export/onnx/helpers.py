"""What the ONNX and TensorRT tests share: a loaded classifier with its spec, padded batches and reference logits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import nn

from compressor.core.artifact import IOSpec
from compressor.core.checkpoint import Checkpoint
from compressor.families import adapter_for
from compressor.models import load_compressed
from compressor.text import TOKEN_TYPE_IDS, Batch, SentenceEncoder
from export.backend import ConversionSpec, Predictor
from export.calibration import Calibration
from tests.models import SENTENCES


@dataclass(frozen=True)
class Source:
    """A checkpoint that is being exported."""

    checkpoint: Checkpoint

    @cached_property
    def model(self) -> nn.Module:
        return load_compressed(self.checkpoint)

    @cached_property
    def spec(self) -> ConversionSpec:
        config = self.model.config
        adapter = adapter_for(config)
        return ConversionSpec(
            lengths=(16, 32, 48),
            max_tokens=adapter.max_tokens(config),
            takes_token_types=adapter.takes_token_types(config),
            pad_id=config.pad_token_id,
            num_labels=config.num_labels,
            model_type=config.model_type,
        )

    def batches(self) -> list[Batch]:
        """One sentence with no padding, then several at each length with padding."""
        encoder = SentenceEncoder.load(self.checkpoint.path, max_tokens=self.spec.max_tokens)
        encoded = encoder.encode(SENTENCES)
        padded = [encoder.pad([x for x in encoded if len(x) <= n], n) for n in self.spec.lengths]
        return [encoder.pad(encoded[:1]), *padded]

    def calibration(self, texts: tuple[str, ...] = SENTENCES) -> Calibration:
        encoder = SentenceEncoder.load(self.checkpoint.path, max_tokens=self.spec.lengths[-1])
        return Calibration(encoder=encoder, texts=texts, lengths=self.spec.lengths)

    def reference(self, batch: Batch) -> np.ndarray:
        names = [name for name in batch if name != TOKEN_TYPE_IDS or self.spec.takes_token_types]
        with torch.no_grad():
            return self.model(**{name: torch.from_numpy(batch[name]) for name in names}).logits.numpy()

    def relative_error(self, predictor: Predictor) -> float:
        """Largest difference to PyTorch over all batches, as a share of the logits' spread."""
        pairs = [(self.reference(batch), predictor.logits(batch)) for batch in self.batches()]
        spread = np.ptp(np.concatenate([expected for expected, _ in pairs]))
        return max(float(np.abs(expected - found).max()) for expected, found in pairs) / float(spread)

    def signal_to_noise_db(self, predictor: Predictor) -> float:
        pairs = [(self.reference(batch), predictor.logits(batch)) for batch in self.batches()]
        signal = sum(float(np.sum(expected**2)) for expected, _ in pairs)
        noise = sum(float(np.sum((expected - found) ** 2)) for expected, found in pairs)
        return 10 * float(np.log10(signal / noise))


def io_for(spec: ConversionSpec, signatures: tuple = ()) -> IOSpec:
    return IOSpec(max_tokens=spec.max_tokens, lengths=(), pad_id=spec.pad_id, signatures=signatures)


def text_model(text: str, opset: int = 18) -> ir.Model:
    """A graph from ONNX's text form, with the opset filled in."""
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    return ir.serde.deserialize_model(proto)


def add_weight(model: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    """Turns the graph input ``name`` into a stored weight."""
    value = next(item for item in model.graph.inputs if item.name == name)
    model.graph.inputs.remove(value)
    value.const_value = ir.tensor(array, name=name)
    model.graph.register_initializer(value)
    return value


def write(model: ir.Model, path: Path) -> Path:
    ir.save(model, path)
    return path
